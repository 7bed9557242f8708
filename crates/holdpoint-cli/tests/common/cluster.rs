//! A PostgreSQL cluster of our own: made for a test process, reachable through a socket only, gone with the process.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

pub struct Cluster {
    dir: PathBuf,
    programs: PathBuf,
    /// Waits for the end of its input, which comes with the end of this process, and then takes the cluster down.
    _undertaker: Child,
}

/// The cluster that most tests share.
pub fn shared() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(Cluster::start)
}

impl Cluster {
    pub fn start() -> Self {
        let programs = programs();
        let dir = tempfile::Builder::new().prefix("holdpoint-pg").tempdir().unwrap().keep();
        if is_root() {
            // The server refuses to run as root; the package made a user for it.
            run(Command::new("chown").arg("postgres").arg(&dir));
        }
        let mut init = program(&programs, &dir, "initdb");
        run(init
            .args(["--no-sync", "-A", "trust", "-E", "UTF8", "--locale=C", "-U", "holdpoint", "-D"])
            .arg(dir.join("data")));
        let mut stop = program(&programs, &dir, "pg_ctl");
        stop.args(["-s", "-m", "immediate", "-D"]).arg(dir.join("data")).arg("stop");
        let words: Vec<String> = std::iter::once(stop.get_program())
            .chain(stop.get_args())
            .map(|word| format!("'{}'", word.to_string_lossy()))
            .collect();
        let script = format!("cat >/dev/null; {}; rm -rf '{}'", words.join(" "), dir.display());
        let undertaker = Command::new("setsid")
            .args(["sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let cluster = Self { dir, programs, _undertaker: undertaker };
        cluster.up();
        cluster
    }

    /// A database that nobody else uses; gives its URL.
    pub fn database(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.url(&name)
    }

    pub fn url(&self, name: &str) -> String {
        let socket = self.dir.display().to_string().replace('/', "%2F");
        format!("postgres://holdpoint:hidden@{socket}/{name}")
    }

    /// Looks into a database, or changes it behind the store's back.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.arg("-h").arg(&self.dir).args(["-U", "holdpoint", "-d", database, "-Atqc", sql]);
        let output = psql.output().unwrap();
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    pub fn up(&self) {
        let settings = format!(
            "-c listen_addresses= -c unix_socket_directories={} -c fsync=off -c max_connections=400 -c shared_buffers=32MB",
            self.dir.display()
        );
        let mut start = program(&self.programs, &self.dir, "pg_ctl");
        start.args(["-w", "-s", "-o", &settings, "-l"]).arg(self.dir.join("log"));
        run(start.arg("-D").arg(self.dir.join("data")).arg("start"));
    }

    /// As if the machine had lost its power, but for what the disk had not written.
    pub fn down(&self) {
        let mut stop = program(&self.programs, &self.dir, "pg_ctl");
        run(stop.args(["-w", "-s", "-m", "immediate", "-D"]).arg(self.dir.join("data")).arg("stop"));
    }
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

fn program(programs: &Path, dir: &Path, name: &str) -> Command {
    let mut command;
    if is_root() {
        command = Command::new("runuser");
        command.args(["-u", "postgres", "--"]).arg(programs.join(name));
    } else {
        command = Command::new(programs.join(name));
    }
    command.current_dir(dir);
    command
}

fn programs() -> PathBuf {
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|dir| dir.filter_map(Result::ok).map(|entry| entry.path().join("bin")).collect())
        .unwrap_or_default();
    versions.retain(|bin| bin.join("initdb").exists());
    versions.sort();
    versions.pop().expect("no PostgreSQL server is installed; `apt-get install postgresql` installs one")
}

fn run(command: &mut Command) {
    // Its output is kept away from the server it starts, which would hold it open.
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert!(status.success(), "{command:?}");
}
