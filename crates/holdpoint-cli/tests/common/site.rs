//! A configuration on disk, for servers in processes of their own.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use holdpoint_faults::{Cluster, Proxy};

use super::process::command;

pub struct Site {
    dir: tempfile::TempDir,
    database: Database,
}

/// Where a site keeps what it stores.
pub enum Database {
    /// A SQLite file of its own.
    File,
    /// A database of its own in a cluster.
    Postgres { cluster: Arc<Cluster>, name: String },
}

impl Database {
    pub fn in_cluster(cluster: &Arc<Cluster>) -> Self {
        Self::Postgres { cluster: Arc::clone(cluster), name: cluster.database_name() }
    }

    /// In the cluster that most tests share.
    pub fn postgres() -> Self {
        Self::in_cluster(&holdpoint_faults::shared())
    }
}

impl Site {
    /// One agent with the built-in tools in `work`, on this script, with a SQLite file; the port is a free one.
    pub fn new(script: &str) -> Self {
        Self::on(Database::File, script)
    }

    /// The same on this database.
    pub fn on(database: Database, script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        let site = Self { dir, database };
        site.write("script.yaml", script);
        site.configure("", "");
        site
    }

    /// With further lines under `[server]` and in the agent.
    pub fn configure(&self, server: &str, agent: &str) {
        let database = match self.database {
            Database::File => "database = \"data/holdpoint.db\"",
            Database::Postgres { .. } => "database_url_env = \"THE_DATABASE\"",
        };
        self.write(
            "holdpoint.toml",
            &format!(
                "[server]\nlisten = \"127.0.0.1:0\"\n{database}\n{server}\n\n\
                 [models.script]\nprovider = \"scripted\"\nscript = \"script.yaml\"\n\n\
                 [[agents]]\nname = \"main\"\nmodel = \"script\"\nworkdir = \"work\"\n{agent}\n"
            ),
        );
    }

    fn postgres(&self) -> (&Cluster, &str) {
        match &self.database {
            Database::Postgres { cluster, name } => (cluster, name),
            Database::File => panic!("its database is a file"),
        }
    }

    /// Looks into its PostgreSQL database, or changes it behind the server's back.
    pub fn sql(&self, sql: &str) -> String {
        let (cluster, name) = self.postgres();
        cluster.sql(name, sql)
    }

    /// Changes its SQLite file behind the server's back, or makes one.
    pub fn sqlite(&self, sql: &str) {
        rusqlite::Connection::open(self.path("data/holdpoint.db")).unwrap().execute_batch(sql).unwrap();
    }

    /// The whole of its PostgreSQL database, as SQL.
    pub fn dump(&self) -> String {
        let (cluster, name) = self.postgres();
        cluster.dump(name)
    }

    /// The URL of its PostgreSQL database.
    pub fn url(&self) -> String {
        let (cluster, name) = self.postgres();
        cluster.url(name)
    }

    /// The URL of its PostgreSQL database through a proxy.
    pub fn url_through(&self, proxy: &Proxy) -> String {
        let (cluster, name) = self.postgres();
        cluster.url_through(proxy.address(), name)
    }

    /// Where several processes share the database, it takes six seconds until one that died is taken to be dead. This is then.
    pub fn dead_are_known_to_be(&self) {
        match self.database {
            Database::File => {}
            Database::Postgres { .. } => drop(self.sql("UPDATE instance SET expires_at = 0")),
        }
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn config(&self) -> String {
        self.path("holdpoint.toml").to_str().unwrap().to_owned()
    }

    /// The command that serves it.
    pub fn serve(&self) -> Command {
        let mut command = command(&["serve", "--config", &self.config()]);
        match self.database {
            Database::File => {}
            Database::Postgres { .. } => drop(command.env("THE_DATABASE", self.url())),
        }
        command
    }

    /// The same, with its database behind a proxy.
    pub fn serve_through(&self, proxy: &Proxy) -> Command {
        let mut command = self.serve();
        command.env("THE_DATABASE", self.url_through(proxy));
        command
    }

    /// What is in a file that tools append to.
    pub fn log(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("work").join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The lines of a file that tools append to.
    pub fn lines(&self, name: &str) -> usize {
        self.log(name).len()
    }
}

/// A script whose first reply is these calls, and whose second is `done`.
pub fn script(calls: &[(&str, serde_json::Value)]) -> String {
    let calls: Vec<String> = calls
        .iter()
        .enumerate()
        .map(|(at, (name, arguments))| format!("{{id: c{at}, name: {name}, arguments: {arguments}}}"))
        .collect();
    format!(
        "rules:\n  - when: {{has_tool_result: true}}\n    answer: {{text: done}}\n  - answer: {{calls: [{}]}}\n",
        calls.join(", ")
    )
}
