//! The command line every benchmark program has: `NAME WORKLOAD --secs S --n N --path FILE --conc C`.

/// What is measured; `bench/README.md` says what each does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// No gate needed, no store.
    W1,
    /// The gate, all in memory.
    W2,
    /// Durable: suspended, dropped, loaded by id, decided, ended.
    W3,
    /// N runs suspended durably.
    W4A,
    /// A fresh process lists all that is pending and resumes one.
    W4B,
    /// One server, many streams that wait.
    W5,
    /// The server of W5.
    Serve,
    /// Decisions at 16 clients, beside the bare statement.
    Decide,
    /// A decision that another instance acts on.
    Owner,
    /// The runs of an instance that is gone.
    Takeover,
    /// An instance to be killed.
    Victim,
    /// 1, 2 and 4 instances on one database.
    Instances,
    /// Rounds 10 to 1,000: is the cost linear?
    Growth,
}

impl Workload {
    /// The name that is printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::W1 => "W1",
            Self::W2 => "W2",
            Self::W3 => "W3",
            Self::W4A => "W4A",
            Self::W4B => "W4B",
            Self::W5 => "W5",
            Self::Serve => "SERVE",
            Self::Decide => "DECIDE",
            Self::Owner => "OWNER",
            Self::Takeover => "TAKEOVER",
            Self::Victim => "VICTIM",
            Self::Instances => "INSTANCES",
            Self::Growth => "GROWTH",
        }
    }
}

/// The arguments of one measurement.
#[derive(Debug, Clone)]
pub struct Arguments {
    /// What is measured.
    pub workload: Workload,
    /// How long W1 to W3 run.
    pub secs: f64,
    /// How many runs W4 suspends.
    pub n: usize,
    /// The database: a file, or the URL of a PostgreSQL database.
    pub path: String,
    /// Keep what is in the database: another process has made it.
    pub keep: bool,
    /// How many runs are under way at a time.
    pub conc: usize,
}

impl Arguments {
    /// Reads the process's arguments; the message says how they should read.
    pub fn parse(program: &str) -> Result<Self, String> {
        Self::read(std::env::args().skip(1)).map_err(|what| {
            format!(
                "{what}\nusage: {program} W1|W2|W3|W4A|W4B|W5|DECIDE|OWNER|TAKEOVER|INSTANCES|GROWTH [--secs S] [--n N] \
                 [--path FILE|URL] [--conc C] [--keep yes|no]"
            )
        })
    }

    fn read(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let name = words.next().ok_or("no workload given")?;
        let workload = match name.to_uppercase().as_str() {
            "W1" => Workload::W1,
            "W2" => Workload::W2,
            "W3" => Workload::W3,
            "W4A" => Workload::W4A,
            "W4B" => Workload::W4B,
            "W5" => Workload::W5,
            "SERVE" => Workload::Serve,
            "DECIDE" => Workload::Decide,
            "OWNER" => Workload::Owner,
            "TAKEOVER" => Workload::Takeover,
            "VICTIM" => Workload::Victim,
            "INSTANCES" => Workload::Instances,
            "GROWTH" => Workload::Growth,
            _ => return Err(format!("unknown workload {name}")),
        };
        let mut read = Self { workload, secs: 5.0, n: 10_000, path: "bench.db".into(), keep: false, conc: 1 };
        while let Some(option) = words.next() {
            let value = words.next().ok_or_else(|| format!("{option} needs a value"))?;
            let bad = |_| format!("{option} does not take {value}");
            match option.as_str() {
                "--secs" => read.secs = value.parse().map_err(|_| bad(()))?,
                "--n" => read.n = value.parse().map_err(|_| bad(()))?,
                "--conc" => read.conc = value.parse().map_err(|_| bad(()))?,
                "--path" => read.path = value,
                "--keep" => read.keep = value == "yes",
                _ => return Err(format!("unknown option {option}")),
            }
        }
        if read.conc == 0 || read.n == 0 {
            return Err("--conc and --n are at least 1".into());
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Arguments, String> {
        Arguments::read(line.split_whitespace().map(String::from))
    }

    #[test]
    fn a_full_line_is_read() {
        let read = read("w3 --secs 2 --n 7 --path a.db --conc 64").unwrap();
        assert_eq!((read.workload, read.n, read.conc), (Workload::W3, 7, 64));
        assert_eq!((read.secs, read.path.as_str()), (2.0, "a.db"));
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        for (line, word) in [
            ("", "no workload"),
            ("W9", "W9"),
            ("W1 --n", "--n"),
            ("W1 --n x", "x"),
            ("W1 --conc 0", "at least 1"),
        ] {
            assert!(read(line).unwrap_err().contains(word), "{line}");
        }
    }
}
