//! What lies in `deploy/` for whoever runs this. It cannot be run here; it is read by those who know how it must be written, and
//! the configuration is started on.
#![allow(clippy::unwrap_used, clippy::expect_used)] // these are tests

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::process::{Serving, command, text};

fn deployed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

fn assert_good(name: &str, output: &Output) {
    assert!(output.status.success(), "{name}:\n{}\n{}", text(&output.stdout), text(&output.stderr));
}

/// A checker that npm installed.
fn checker(name: &str) -> Command {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/deploy");
    let path = folder.join("node_modules/.bin").join(name);
    assert!(path.exists(), "{} is not there: run `npm ci` in {}", path.display(), folder.display());
    let mut command = Command::new(path);
    command.current_dir(folder);
    command
}

#[test]
fn the_compose_file_is_one() {
    let file = deployed("compose.yaml");
    let output = checker("dclint").args(["-c", "dclint.json", "--max-warnings", "0"]).arg(file).output();
    assert_good("compose.yaml", &output.unwrap());
}

#[test]
fn the_dockerfile_is_one() {
    assert_good(
        "Dockerfile",
        &checker("dockerfile-utils").arg("lint").arg(deployed("Dockerfile")).output().unwrap(),
    );
}

/// With the binary that there is, in the place of the one that is to be installed.
#[test]
fn the_unit_of_systemd_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let unit = std::fs::read_to_string(deployed("holdpoint.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/local/bin/holdpoint "), "{unit}");
    let path = dir.path().join("holdpoint.service");
    std::fs::write(&path, unit.replace("/usr/local/bin/holdpoint", common::HOLDPOINT)).unwrap();
    let output = Command::new("systemd-analyze").arg("verify").arg(&path).output();
    let output = output.expect("systemd-analyze is not there: install Debian's package `systemd`");
    assert_good("holdpoint.service", &output);
    assert_eq!(text(&output.stderr), "", "it warns");
}

#[test]
fn an_instance_starts_on_the_example_configuration() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("work")).unwrap();
    let mut example = std::fs::read_to_string(deployed("example.toml")).unwrap();
    for (theirs, here) in [
        ("127.0.0.1:7411", "127.0.0.1:0"),
        ("/var/lib/holdpoint/work", dir.path().join("work").to_str().unwrap()),
    ] {
        assert!(example.contains(theirs), "{example}");
        example = example.replace(theirs, here);
    }
    let config = dir.path().join("holdpoint.toml");
    std::fs::write(&config, example).unwrap();
    let mut serve = command(&["serve", "--config", config.to_str().unwrap()]);
    serve.env("HOLDPOINT_DATABASE_URL", holdpoint_faults::shared().database()).env("OPENAI_API_KEY", "none");
    let serving = Serving::start(serve);
    assert_eq!(serving.server.get("/v1/runs")["items"], serde_json::json!([]));
}
