//! The README says what is so: its configuration works, its program is the one that is tested, and no key is missing.
#![allow(clippy::unwrap_used, clippy::expect_used)] // these are tests

mod common;

use common::process::{Serving, command, text};
use serde_json::json;

const README: &str = include_str!("../../../README.md");

/// The first block of this language.
fn block(language: &str) -> &'static str {
    let start = format!("```{language}\n");
    README.split_once(&start).unwrap().1.split_once("\n```").unwrap().0
}

#[test]
fn the_server_of_ones_own_works_as_written() {
    let place = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = block("toml").replace("[server]\n", &format!("[server]\nlisten = \"127.0.0.1:{port}\"\n"));
    std::fs::write(place.path().join("holdpoint.toml"), config).unwrap();
    std::fs::write(place.path().join("script.yaml"), block("yaml")).unwrap();
    std::fs::create_dir(place.path().join("notes")).unwrap();
    let path = place.path().join("holdpoint.toml");
    let mut serving = Serving::start(command(&["serve", "--config", path.to_str().unwrap()]));
    let (status, answer) = serving.server.chat("Buy milk");
    assert_eq!(status, 202, "{answer}");
    let run = answer["runId"].as_str().unwrap().to_owned();
    // Stopped while a request waits, started again, decided then.
    serving.signal("-TERM");
    assert!(serving.wait().success());
    let serving = Serving::start(command(&["serve", "--config", path.to_str().unwrap()]));
    assert_eq!(serving.server.decide(&serving.server.pending()[0], "approve", json!({})).0, 200);
    assert_eq!(serving.server.ended(&run)["text"], "It is noted.");
    assert_eq!(std::fs::read_to_string(place.path().join("notes/milk.txt")).unwrap(), "buy milk\n");
}

/// Its lines are those of the library's documentation, which is compiled and run.
#[test]
fn the_program_is_the_one_that_is_tested() {
    let tested = include_str!("../../holdpoint/src/lib.rs");
    let tested: Vec<&str> = tested
        .lines()
        .filter_map(|line| line.strip_prefix("//! "))
        .map(|line| line.trim_start_matches("# ").trim())
        .collect();
    let whole = tested.join("\n");
    for line in
        block("rust").lines().map(str::trim).filter(|line| !line.is_empty() && !line.contains("main()"))
    {
        let is_there = tested.contains(&line) || whole.contains(line);
        assert!(
            is_there || ["Ok(())", "}", "]);"].contains(&line) || line.starts_with("// "),
            "not tested: {line}"
        );
    }
}

/// Every key a section takes, by what its refusal of an unknown one lists.
#[test]
fn every_key_of_the_configuration_is_in_the_table() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("holdpoint.toml");
    let models = "[models.m]\nprovider = \"scripted\"\n";
    let agent = "[[agents]]\nname = \"a\"\nmodel = \"m\"\n";
    for (section, wanted) in [
        (format!("[server]\nzzz = 1\n{models}{agent}"), "listen"),
        (format!("{models}zzz = 1\n{agent}"), "provider"),
        (format!("{models}{agent}zzz = 1\n"), "workdir"),
        (format!("{models}{agent}[agents.limits]\nzzz = 1\n"), "rounds"),
        (format!("{models}{agent}[[policies]]\nzzz = 1\n"), "agents"),
        (format!("{models}{agent}[[agents.policies]]\nzzz = 1\n"), "deny"),
    ] {
        std::fs::write(&path, &section).unwrap();
        let output = command(&["serve", "--config", path.to_str().unwrap()]).output().unwrap();
        let said = text(&output.stderr);
        let known =
            said.split_once("unknown field `zzz`, expected one of ").unwrap_or_else(|| panic!("{said}")).1;
        let keys: Vec<&str> =
            known.lines().next().unwrap().split(", ").map(|key| key.trim_matches('`')).collect();
        assert!(keys.contains(&wanted), "{said}");
        for key in keys {
            let named =
                [format!("`{key}`"), format!("limits.{key}`")].iter().any(|name| README.contains(name));
            assert!(named, "the README does not name `{key}`");
        }
    }
}

/// What a version says that meets the database of a newer one, but for the numbers and the name.
#[test]
fn what_is_said_of_a_newer_database_is_what_is_said_of_it_in_the_chapter_on_upgrades() {
    const OPERATIONS: &str = include_str!("../../../docs/operations.md");
    let plain = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
    let told =
        OPERATIONS.lines().find(|line| line.starts_with("error: the database `holdpoint.db`")).unwrap();
    let site = common::site::Site::new("rules: [{answer: {text: done}}]\n");
    drop(Serving::start(site.serve()));
    site.sqlite("PRAGMA user_version = 99");
    let refused = site.serve().output().unwrap();
    let path = site.path("data/holdpoint.db");
    let said = text(&refused.stderr).replace(path.to_str().unwrap(), "holdpoint.db");
    assert!(plain(&said).contains(&plain(told)), "{said}\n{told}");
}

#[test]
fn every_command_is_in_the_table() {
    let output = command(&["--help"]).output().unwrap();
    let help = text(&output.stdout);
    let commands = help.split_once("Commands:\n").unwrap().1.split_once("\n\n").unwrap().0;
    let names: Vec<&str> = commands
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.len() > 10, "{help}");
    for name in names {
        assert!(README.contains(&format!("`{name} ")) || README.contains(&format!("`{name}`")), "{name}");
    }
}
