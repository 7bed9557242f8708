//! A PostgreSQL cluster of our own: made for this process, reachable through a socket only, gone with the process.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use holdpoint_store::{ManualClock, PostgresOptions, PostgresStore};

use crate::bed::{Bed, clock};

struct Cluster {
    socket: PathBuf,
    /// Where it listens with TLS.
    port: u16,
    /// Waits for the end of its input, which comes with the end of this process, and then takes the cluster down.
    _undertaker: Child,
}

/// A database of the cluster.
pub struct Database {
    pub url: String,
    /// The same over TCP, encrypted.
    #[cfg(feature = "postgres-tls")]
    pub encrypted: String,
    /// The certificate to believe for that.
    #[cfg(feature = "postgres-tls")]
    pub certificate: PathBuf,
}

impl Database {
    pub async fn store(&self, pending_max: u64, clock: Arc<ManualClock>) -> Arc<PostgresStore> {
        let options =
            PostgresOptions { connections: 4, pending_max, clock: Some(clock), ..PostgresOptions::default() };
        PostgresStore::connect(&self.url, options).await.unwrap()
    }

    /// Looks into the database, or changes it behind the store's back.
    pub async fn client(&self) -> tokio_postgres::Client {
        client(&self.url).await
    }
}

impl Bed {
    pub async fn postgres(pending_max: u64) -> Self {
        let clock = clock();
        let store = database().await.store(pending_max, clock.clone()).await;
        Self::of(store, clock)
    }
}

/// A database that nobody else uses.
pub async fn database() -> Database {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let cluster = CLUSTER.get_or_init(start);
    let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let url = |name: &str| {
        format!("host={} port={} user=holdpoint dbname={name}", cluster.socket.display(), cluster.port)
    };
    client(&url("postgres")).await.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
    Database {
        url: url(&name),
        #[cfg(feature = "postgres-tls")]
        encrypted: format!(
            "host=localhost port={} user=holdpoint dbname={name} sslmode=require",
            cluster.port
        ),
        #[cfg(feature = "postgres-tls")]
        certificate: cluster.socket.join("server.crt"),
    }
}

async fn client(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn start() -> Cluster {
    let programs = programs();
    let dir = tempfile::Builder::new().prefix("holdpoint-pg").tempdir().unwrap().keep();
    let data = dir.join("data");
    let root = std::fs::metadata("/proc/self").is_ok_and(|me| {
        use std::os::unix::fs::MetadataExt;
        me.uid() == 0
    });
    if root {
        // The server refuses to run as root; the package made a user for it.
        run(Command::new("chown").args(["postgres"]).arg(&dir));
    }
    let as_user = |program: &str| {
        let mut command = Command::new(if root { "runuser".into() } else { programs.join(program) });
        if root {
            command.args(["-u", "postgres", "--"]).arg(programs.join(program));
        }
        command.current_dir(&dir);
        command
    };
    run(as_user("initdb")
        .args(["--no-sync", "-A", "trust", "-E", "UTF8", "--locale=C", "-U", "holdpoint", "-D"])
        .arg(&data));
    certificate(&dir, root);
    // Free a moment ago: nobody else is likely to ask for it meanwhile.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let settings = format!(
        "-c listen_addresses=localhost -c port={port} -c ssl=on -c ssl_cert_file={0}/server.crt \
         -c ssl_key_file={0}/server.key -c unix_socket_directories={0} -c fsync=off -c max_connections=400 -c shared_buffers=32MB",
        dir.display()
    );
    let log = dir.join("log");
    run(as_user("pg_ctl")
        .args(["-w", "-s", "-o", &settings, "-l"])
        .arg(&log)
        .arg("-D")
        .arg(&data)
        .arg("start"));
    let mut stop = as_user("pg_ctl");
    stop.args(["-s", "-m", "immediate", "-D"]).arg(&data).arg("stop");
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
    Cluster { socket: dir, port, _undertaker: undertaker }
}

/// A key and a certificate that vouches for itself.
fn certificate(dir: &Path, root: bool) {
    let (key, crt) = (dir.join("server.key"), dir.join("server.crt"));
    run(Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&crt));
    if root {
        run(Command::new("chown").arg("postgres").args([&key, &crt]));
    }
}

fn programs() -> PathBuf {
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|dir| dir.filter_map(Result::ok).map(|entry| entry.path().join("bin")).collect())
        .unwrap_or_default();
    versions.retain(|bin: &PathBuf| Path::new(&bin.join("initdb")).exists());
    versions.sort();
    versions.pop().expect("no PostgreSQL server is installed; `apt-get install postgresql` installs one")
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
