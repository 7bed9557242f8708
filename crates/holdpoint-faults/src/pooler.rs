//! A PgBouncer before a cluster, which shares its connections between transactions.

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Cluster;
use super::cluster::{free_port, is_root};

/// The program, which Debian keeps among those of the system.
const PROGRAM: &str = "pgbouncer";
/// How long it may take to come up.
const UP_MAX: Duration = Duration::from_secs(20);

/// The pooler. It ends with this.
#[derive(Debug)]
pub struct Pooler {
    child: Child,
    address: SocketAddr,
    _dir: tempfile::TempDir,
}

impl Pooler {
    /// Starts one.
    ///
    /// # Panics
    /// When PgBouncer is not installed, or does not start.
    pub fn before(cluster: &Cluster) -> Self {
        let dir = tempfile::Builder::new().prefix("holdpoint-pgbouncer").tempdir().unwrap();
        let port = free_port();
        let settings = format!(
            "[databases]\n* = host={} port={}\n\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {}/users\npool_mode = transaction\ndefault_pool_size = 20\n\
             max_client_conn = 400\n{}",
            cluster.address().ip(),
            cluster.address().port(),
            dir.path().display(),
            // One that can keep prepared statements is to be as the older ones.
            if keeps_statements() { "max_prepared_statements = 0\n" } else { "" }
        );
        let config = dir.path().join("pgbouncer.ini");
        std::fs::write(&config, settings).unwrap();
        std::fs::write(dir.path().join("users"), "\"holdpoint\" \"hidden\"\n").unwrap();
        let mut command = Command::new(if is_root() { "runuser" } else { PROGRAM });
        if is_root() {
            // It refuses to run as root, as the database does.
            let done = Command::new("chown").args(["-R", "postgres"]).arg(dir.path()).status().unwrap();
            assert!(done.success());
            command.args(["-u", "postgres", "--", PROGRAM]);
        }
        command.arg("-q").arg(&config).current_dir("/").env("PATH", path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child =
            command.spawn().expect("no PgBouncer is installed; `apt-get install pgbouncer` installs one");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let pooler = Self { child, address, _dir: dir };
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(began.elapsed() < UP_MAX, "PgBouncer does not come up");
            std::thread::sleep(Duration::from_millis(20));
        }
        pooler
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        // Asked, so that what `runuser` started ends with it.
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let _ = self.child.wait();
    }
}

fn path() -> String {
    format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default())
}

/// Whether this version has a setting for it: those from 1.21 on.
fn keeps_statements() -> bool {
    let output = Command::new(PROGRAM).arg("--version").env("PATH", path()).output();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let version = said.lines().next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(1), Some(21))
}
