//! A PostgreSQL cluster of our own: made for a test process, reachable by nobody else, gone with the process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long a cluster may take to come up again after it was killed.
const UP_MAX: Duration = Duration::from_secs(60);

/// How many seconds a client may say nothing before it says who it is. One that came while the cluster was ending and then fell
/// silent, as behind a proxy that swallows, is told of no end: the cluster waits for this long before it ends, in any mode.
const SILENCE_SECONDS: u32 = 10;

/// A cluster. It listens on a socket in its folder, and on loopback with and without TLS.
#[derive(Debug)]
pub struct Cluster {
    dir: PathBuf,
    programs: PathBuf,
    port: u16,
    disk: Disk,
    /// Waits for the end of its input, which comes with the end of this process, and then takes the cluster down.
    _undertaker: Child,
}

/// What a cluster's data lies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    /// The machine's disk, without waiting for it: a test does not cut the power.
    Quick,
    /// The same, and each commit waits for the disk, as in production.
    Synced,
    /// The databases lie on a disk of so many MiB, in the cluster's own view of the file system ([`Cluster::small_disk`]).
    /// What was on it is gone with a restart.
    Small(u32),
}

/// How a cluster ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Transactions are rolled back, connections closed, everything written.
    Fast,
    /// As if the machine had lost its power, but for what the disk had not written.
    Immediate,
    /// `kill -9` of the process that started all others, which find out by themselves.
    Kill,
}

/// The cluster that most tests of a process share.
pub fn shared() -> Arc<Cluster> {
    static CLUSTER: OnceLock<Arc<Cluster>> = OnceLock::new();
    Arc::clone(CLUSTER.get_or_init(|| Arc::new(Cluster::start(Disk::Quick))))
}

impl Cluster {
    /// Makes one and starts it.
    ///
    /// # Panics
    /// When PostgreSQL is not installed, or does not start.
    pub fn start(disk: Disk) -> Self {
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
        certificate(&dir);
        let cluster =
            Self { port: free_port(), disk, _undertaker: undertaker(&programs, &dir), programs, dir };
        cluster.up();
        if matches!(disk, Disk::Small(_)) {
            let sql = format!("CREATE TABLESPACE small LOCATION '{}'", cluster.dir.join("small").display());
            cluster.sql("postgres", &sql);
        }
        cluster
    }

    /// Makes a database that nobody else uses; gives its name.
    pub fn database_name(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let place = if matches!(self.disk, Disk::Small(_)) { " TABLESPACE small" } else { "" };
        self.sql("postgres", &format!("CREATE DATABASE {name}{place}"));
        name
    }

    /// Makes a database that nobody else uses; gives its URL, by the socket.
    pub fn database(&self) -> String {
        self.url(&self.database_name())
    }

    /// The URL of a database, by the socket.
    pub fn url(&self, name: &str) -> String {
        let socket = self.dir.display().to_string().replace('/', "%2F");
        format!("postgres://holdpoint:hidden@{socket}:{}/{name}", self.port)
    }

    /// The URL of a database, by TCP and through a proxy to [`Self::address`].
    pub fn url_through(&self, proxy: SocketAddr, name: &str) -> String {
        format!("postgres://holdpoint:hidden@{proxy}/{name}?sslmode=disable")
    }

    /// The URL of a database, by TCP and encrypted.
    pub fn url_encrypted(&self, name: &str) -> String {
        format!("postgres://holdpoint:hidden@localhost:{}/{name}?sslmode=require", self.port)
    }

    /// The certificate to believe of the encrypted address, PEM.
    pub fn certificate(&self) -> PathBuf {
        self.dir.join("server.crt")
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// The folder of the small disk, as this process sees it.
    ///
    /// # Panics
    /// When it is down.
    pub fn small_disk(&self) -> PathBuf {
        format!("/proc/{}/root{}", self.postmaster().unwrap(), self.dir.join("small").display()).into()
    }

    /// What the server has written to its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// Looks into a database, or changes it behind the store's back. Gives the rows, columns separated by `|`.
    ///
    /// # Panics
    /// When the database refuses.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.arg("-h").arg(&self.dir).args(["-p", &self.port.to_string()]);
        psql.args(["-U", "holdpoint", "-v", "ON_ERROR_STOP=1", "-d", database, "-Atqc", sql]);
        let output = psql.output().unwrap();
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// The whole of a database as SQL, as `pg_dump` writes it.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn dump(&self, database: &str) -> String {
        let mut dump = Command::new(self.programs.join("pg_dump"));
        dump.arg("-h").arg(&self.dir).args(["-p", &self.port.to_string(), "-U", "holdpoint"]);
        let output = dump.args(["--inserts", "--no-owner", database]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // What is meant for `psql` alone is left out.
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines()
            .filter(|line| !line.starts_with('\\'))
            .fold(String::new(), |text, line| text + line + "\n")
    }

    /// Starts it, and waits until it answers.
    ///
    /// # Panics
    /// When it does not start.
    pub fn up(&self) {
        let began = Instant::now();
        // What a killed one has left running keeps the next from starting, for a moment.
        while !self.try_up() {
            assert!(began.elapsed() < UP_MAX, "the cluster does not start:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn try_up(&self) -> bool {
        let fsync = if self.disk == Disk::Synced { "on" } else { "off" };
        let settings = format!(
            "-c listen_addresses=127.0.0.1 -c port={} -c ssl=on -c ssl_cert_file={dir}/server.crt \
             -c ssl_key_file={dir}/server.key -c unix_socket_directories={dir} -c fsync={fsync} \
             -c max_connections=400 -c shared_buffers=32MB -c authentication_timeout={SILENCE_SECONDS}",
            self.port,
            dir = self.dir.display()
        );
        let mut start = program(&self.programs, &self.dir, "pg_ctl");
        start.args(["-w", "-s", "-o", &settings, "-l"]).arg(self.dir.join("log"));
        start.arg("-D").arg(self.dir.join("data")).arg("start");
        match self.disk {
            Disk::Quick | Disk::Synced => {}
            Disk::Small(mebibytes) => start = on_a_small_disk(&start, &self.dir, mebibytes),
        }
        quietly(&mut start)
    }

    /// Ends it.
    ///
    /// # Panics
    /// When it is not up.
    pub fn down(&self, how: Stop) {
        let mode = match how {
            Stop::Fast => "fast",
            Stop::Immediate => "immediate",
            Stop::Kill => {
                run(Command::new("kill").args(["-9", &self.postmaster().unwrap().to_string()]));
                return;
            }
        };
        let mut stop = program(&self.programs, &self.dir, "pg_ctl");
        run(stop.args(["-w", "-s", "-m", mode, "-D"]).arg(self.dir.join("data")).arg("stop"));
    }

    fn postmaster(&self) -> Option<u32> {
        let file = std::fs::read_to_string(self.dir.join("data/postmaster.pid")).ok()?;
        file.lines().next()?.trim().parse().ok()
    }
}

pub(crate) fn is_root() -> bool {
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

/// The command in a mount namespace of its own, where the folder `small` is a disk of so many MiB.
fn on_a_small_disk(inner: &Command, dir: &Path, mebibytes: u32) -> Command {
    let small = dir.join("small");
    run(program(Path::new("/bin"), dir, "mkdir").arg("-p").arg(&small));
    let mut command = Command::new("unshare");
    let owner = if is_root() {
        ",uid=postgres"
    } else {
        command.args(["--user", "--map-current-user", "--keep-caps"]);
        ""
    };
    let script = format!("mount -t tmpfs -o size={mebibytes}m,mode=0700{owner} tmpfs \"$0\" && exec \"$@\"");
    command.args(["--mount", "sh", "-c", &script]).arg(small).arg(inner.get_program()).args(inner.get_args());
    command.current_dir(dir);
    command
}

fn undertaker(programs: &Path, dir: &Path) -> Child {
    let mut stop = program(programs, dir, "pg_ctl");
    stop.args(["-s", "-m", "immediate", "-D"]).arg(dir.join("data")).arg("stop");
    let words: Vec<String> = std::iter::once(stop.get_program())
        .chain(stop.get_args())
        .map(|word| format!("'{}'", word.to_string_lossy()))
        .collect();
    let script = format!("cat >/dev/null; {}; rm -rf '{}'", words.join(" "), dir.display());
    Command::new("setsid")
        .args(["sh", "-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// A key and a certificate that vouches for itself.
fn certificate(dir: &Path) {
    let (key, crt) = (dir.join("server.key"), dir.join("server.crt"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]);
    openssl.args(["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    run(openssl.arg("-keyout").arg(&key).arg("-out").arg(&crt));
    if is_root() {
        run(Command::new("chown").arg("postgres").args([&key, &crt]));
    }
}

pub(crate) fn free_port() -> u16 {
    // Free a moment ago: nobody else is likely to ask for it meanwhile.
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
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
    assert!(quietly(command), "{command:?}");
}

/// Its output is kept away from the server it starts, which would hold it open.
fn quietly(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
        .success()
}
