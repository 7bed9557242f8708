//! `holdpoint doctor`: what it finds, what it says to do, and what a script can tell by its exit code.
#![allow(clippy::unwrap_used, clippy::expect_used)] // these are tests

mod common;

use common::http::Server;
use common::process::{Serving, command};
use common::site::{Database, Site, script};
use serde_json::json;

/// What it said.
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

fn doctor(site: &Site, url: Option<String>) -> Said {
    let mut command = command(&["doctor", "--config", &site.config()]);
    let output = command.envs(url.map(|url| ("THE_DATABASE", url))).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    Said { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

fn bash() -> String {
    script(&[("Bash", json!({ "command": "true" }))])
}

fn start(server: &Server) -> String {
    let (status, answer) = server.chat("go");
    assert_eq!(status, 202, "{answer}");
    answer["runId"].as_str().unwrap().to_owned()
}

/// What is measured on a cluster without fsync is said to be wrong, and everything else is looked at.
#[test]
fn it_says_what_is_wrong_with_a_database_and_what_to_do() {
    let site = Site::on(Database::postgres(), &bash());
    let look = || doctor(&site, Some(site.url()));
    let said = look();
    assert!(said.out.contains("none yet"), "{}", said.out);
    let serving = Serving::start(site.serve());
    let run = start(&serving.server);
    let Said { code, out, err } = look();
    assert_eq!(code, Some(1), "{out}{err}");
    for line in [
        "WRONG  fsync               off",
        "-> set fsync = on",
        "ok     schema              version ",
        "1 requests wait",
        "1 alive",
        "ok     readable            2 requests and runs",
        "1 instances need 23",
    ] {
        assert!(out.contains(line), "no {line:?} in {out}");
    }
    assert!(out.contains("PostgreSQL ") && out.contains(" a second, one takes "), "{out}");
    assert!(err.contains("wrong") && !out.contains("hidden") && !err.contains("hidden"), "{err}");

    site.sql("UPDATE run SET snapshot = '\\x00ff'");
    let Said { out, .. } = look();
    assert!(
        out.contains("WRONG  readable            1 of 2 cannot be read")
            && out.contains(&format!("run {run}")),
        "{out}"
    );

    site.sql("ALTER TABLE run RENAME COLUMN snapshot TO theirs");
    let Said { code, err, .. } = look();
    assert_eq!(code, Some(1));
    assert!(
        err.contains("snapshot") && err.contains("hint: its tables are not what this version makes"),
        "{err}"
    );
}

#[test]
fn it_looks_at_a_file_while_a_server_has_it() {
    let site = Site::new(&bash());
    let serving = Serving::start(site.serve());
    start(&serving.server);
    let Said { code, out, err } = doctor(&site, None);
    // A disk that is slow, because others use it too, is wrong as well.
    assert_eq!(code == Some(0), !out.contains("WRONG"), "{out}{err}");
    assert!(out.contains("SQLite 3.") && out.contains("1 requests wait"), "{out}");
    assert!(out.contains("ok     readable            2 requests and runs"), "{out}");
    let left = std::fs::read_dir(site.path("data")).unwrap().filter_map(Result::ok);
    assert!(left.map(|entry| entry.file_name()).all(|name| !name.to_string_lossy().contains("checkup")));
}

/// Each has a hint of its own, and none is looked at any further.
#[test]
fn it_says_of_what_is_no_database_what_to_do_with_it() {
    type Make<'a> = &'a dyn Fn(&Site);
    let cases: [(Make<'_>, &str, &str); 4] = [
        (&|_| {}, "there is no file", "`holdpoint serve` makes it at its first start"),
        (
            &|site| site.write("data/holdpoint.db", &"this is a text and no database. ".repeat(100)),
            "file is not a database",
            "If it is not Holdpoint's, name another file in `database`",
        ),
        (
            &|site| site.sqlite("CREATE TABLE theirs (x)"),
            "a database of another program",
            "If it is not Holdpoint's, name another file in `database`",
        ),
        (
            &|site| std::fs::create_dir(site.path("data/holdpoint.db")).unwrap(),
            "unable to open",
            "name a file in `database` under `[server]`",
        ),
    ];
    for (make, what, hint) in cases {
        let site = Site::new(&bash());
        std::fs::create_dir(site.path("data")).unwrap();
        make(&site);
        let Said { code, out, err } = doctor(&site, None);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
        assert!(err.contains(what) && err.contains(&format!("hint: {hint}")) || err.contains(hint), "{err}");
    }
}

/// Of a file that is damaged, and of a row in it.
#[test]
fn it_finds_what_cannot_be_read_in_a_file() {
    let site = Site::new(&bash());
    let serving = Serving::start(site.serve());
    let run = start(&serving.server);
    drop(serving);
    site.sqlite("UPDATE run SET snapshot = x'00ff'");
    let Said { code, out, .. } = doctor(&site, None);
    assert_eq!(code, Some(1), "{out}");
    assert!(
        out.contains("WRONG  readable            1 of 2 cannot be read")
            && out.contains(&format!("run {run}")),
        "{out}"
    );
    assert!(out.contains("docs/operations.md"), "{out}");
}

/// A script goes by these.
#[test]
fn its_exit_codes_are_what_its_help_says() {
    let help = command(&["doctor", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for line in [
        "  0  nothing is wrong",
        "  1  something is WRONG, or the database cannot be looked at",
        "  2  the command line",
    ] {
        assert!(help.contains(line), "{help}");
    }
    let site = Site::new(&bash());
    assert_eq!(doctor(&site, None).code, Some(1), "it cannot be looked at");
    drop(Serving::start(site.serve()));
    let Said { code, out, .. } = doctor(&site, None);
    assert_eq!(
        code,
        Some(i32::from(out.contains("WRONG"))),
        "nothing is wrong, but for a disk that others use too: {out}"
    );
    site.sqlite("PRAGMA user_version = 99");
    assert_eq!(doctor(&site, None).code, Some(1), "something is wrong");
    site.write("holdpoint.toml", "[server]\ndatabse = \"x\"\n");
    assert_eq!(doctor(&site, None).code, Some(2), "the configuration cannot be used");
    assert_eq!(
        command(&["doctor", "--colour"]).output().unwrap().status.code(),
        Some(2),
        "the command line cannot"
    );
}
