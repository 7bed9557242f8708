//! From the text of a file to its values: an error shows the line, and the nearest name that would be right.

use std::path::{Path, PathBuf};

use holdpoint_server::ServerError;

use crate::fail::{Fail, Result};

use super::file::File;

/// The largest configuration file, in bytes.
pub(crate) const CONFIG_MAX_BYTES: u64 = 1024 * 1024;

/// How alike a name must be to be offered, 0 to 1.
const ALIKE_MIN: f64 = 0.6;

/// Where the configuration is when nobody says: in the user's own folder. Never in the folder one happens to be in,
/// which may be somebody else's repository.
pub(crate) fn usual_path() -> Option<PathBuf> {
    let folder = match std::env::var_os("XDG_CONFIG_HOME").filter(|value| !value.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(&std::env::var_os("HOME")?).join(".config"),
    };
    Some(folder.join("holdpoint/holdpoint.toml"))
}

/// Reads a text file that is part of the configuration.
pub(crate) fn text(path: &Path, what: &str) -> Result<String> {
    let cannot = |why: &dyn std::fmt::Display| {
        Fail::usage(format!("{what} `{}` cannot be read: {why}", path.display()))
    };
    let size = match std::fs::metadata(path) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(cannot(&error).hint("create it, or name another"));
        }
        Err(error) => return Err(cannot(&error)),
    };
    if size > CONFIG_MAX_BYTES {
        return Err(cannot(&format_args!("it has {size} bytes, more than {CONFIG_MAX_BYTES}")));
    }
    let bytes = std::fs::read(path).map_err(|error| cannot(&error))?;
    String::from_utf8(bytes).map_err(|_| cannot(&"it is not UTF-8"))
}

/// Reads a configuration file: YAML by its ending `.yaml` or `.yml`, else TOML.
pub(crate) fn file(path: &Path) -> Result<File> {
    let text = text(path, "the configuration")?;
    let is_yaml = path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml");
    let read = if is_yaml {
        serde_saphyr::from_str(&text).map_err(|error| error.to_string())
    } else {
        toml::from_str(&text).map_err(|error| error.to_string())
    };
    let file: File = read.map_err(|error| {
        let hint = match nearest_known(&error) {
            Some(near) => Some(format!("did you mean `{near}`?")),
            None if error.contains("socket address") => {
                Some("write an address of this machine and a port, such as \"127.0.0.1:7411\"".to_owned())
            }
            None => None,
        };
        Fail::usage(format!(
            "the configuration `{}` cannot be used\n{}",
            path.display(),
            error.trim_end().trim_start_matches("error: ")
        ))
        .hint_opt(hint)
    })?;
    match file.server.listen {
        listen if listen.ip().is_loopback() => Ok(file),
        listen => Err(Fail::usage(ServerError::NotLoopback(listen).to_string())
            .hint("from another machine, use a tunnel: `ssh -L 7411:127.0.0.1:7411 HOST`")),
    }
}

/// The known name that is most like the unknown one, out of the error that lists both.
fn nearest_known(error: &str) -> Option<String> {
    let after =
        ["unknown field `", "unknown variant `"].iter().find_map(|start| Some(error.split_once(start)?.1))?;
    let (unknown, known) = after.split_once('`')?;
    let known = known.lines().next()?.trim_start_matches(", expected ").trim_start_matches("one of ");
    let names = known.split(", ").flat_map(|names| names.split(" or ")).map(|name| name.trim_matches('`'));
    nearest(unknown, names).map(str::to_owned)
}

/// The name that is most like this one, if any is like it at all.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = name.to_lowercase().replace('-', "_");
    known
        .map(|known| (strsim::normalized_damerau_levenshtein(&plain, &known.to_lowercase()), known))
        .filter(|(alike, _)| *alike >= ALIKE_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str, ending: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(format!("holdpoint.{ending}"));
        std::fs::write(&path, text).unwrap();
        file(&path).unwrap_err().to_string()
    }

    const TOML: &str = "[models.m]\nprovider = \"scripted\"\nscript = \"s.yaml\"\n[[agents]]\nname = \"main\"\nmodel = \"m\"\n";

    #[test]
    fn a_misspelt_key_is_refused_with_its_line_and_the_nearest_key() {
        for (text, line, near) in [
            ("[[policies]]\nname = \"p\"\nrequire_aproval_for = [\"*\"]\n", 9, "require_approval_for"),
            ("[server]\ndefault_timeout_secs = 30\n", 8, ""),
            ("[server]\nlisten_ = \"127.0.0.1:0\"\n", 8, "listen"),
            ("[server]\nbypass-approval = true\n", 8, "bypass_approval"),
            ("[agents.limits]\ncalls_totl = 3\n", 8, "calls_total"),
            ("[[agents.policies]]\nallowed = [\"Read\"]\n", 8, "allow"),
            ("execution = \"paralel\"\n", 7, "parallel"),
        ] {
            let error = error(&format!("{TOML}{text}"), "toml");
            assert!(
                error.contains(&format!("line {line}, column ")) && error.contains('^'),
                "{text}: {error}"
            );
            match near {
                "" => assert!(!error.contains("did you mean"), "{error}"),
                near => assert!(error.contains(&format!("did you mean `{near}`?")), "{text}: {error}"),
            }
        }
    }

    #[test]
    fn yaml_is_held_to_the_same() {
        let good =
            "models: {m: {provider: scripted, script: s.yaml}}\nagents:\n  - name: main\n    model: m\n";
        let error = error(&format!("{good}    aproval_timeout: 30s\n"), "yaml");
        assert!(error.contains("did you mean `approval_timeout`?") && error.contains('^'), "{error}");
    }

    #[test]
    fn an_address_that_is_none_says_how_one_is_written() {
        let error = error(&format!("{TOML}[server]\nlisten = \"localhost:7411\"\n"), "toml");
        assert!(error.contains("line 8") && error.contains("such as \"127.0.0.1:7411\""), "{error}");
    }

    #[test]
    fn a_key_that_stands_there_twice_is_refused() {
        assert!(error(&format!("{TOML}model = \"other\"\n"), "toml").contains("duplicate key"));
    }

    #[test]
    fn the_nearest_name_is_one_that_is_like_it() {
        for (name, near) in [
            ("read", Some("Read")),
            ("Serch", Some("Search")),
            ("Raed", Some("Read")),
            ("Fetch", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, ["Read", "List", "Search", "Write"].into_iter()), near, "{name}");
        }
    }
}
