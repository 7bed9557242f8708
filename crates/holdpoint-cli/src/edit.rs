//! Editing the arguments of a call, and showing what became of them.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use holdpoint_core::arguments::{ARGUMENTS_MAX_BYTES, Arguments};
use holdpoint_core::render::render;
use holdpoint_core::tool::ToolDefinition;
use holdpoint_protocol::{AgentName, RenderField};

use crate::fail::{Fail, Result};
use crate::term::Style;
use crate::text::{block, safe};

/// Edited arguments as they will be shown: every field, and which of them are new.
pub(crate) fn shown(
    tool: &str,
    before: &str,
    after: &str,
    style: Style,
    width: Option<usize>,
) -> Result<String> {
    let (old, new) = (fields(tool, before), fields(tool, after)?);
    let old = old.map(|(fields, _)| fields).unwrap_or_default();
    let (new, warnings) = new;
    let mut out = format!("{}\n", style.bold("as you changed it:"));
    for field in &new {
        let mark = match old.iter().find(|other| other.name == field.name) {
            Some(other) if other.value == field.value => "",
            Some(_) => " (changed)",
            None => " (new)",
        };
        out.push_str(&format!("{}{mark}:\n{}", safe(&field.name), block(&field.value, width)));
    }
    for gone in old.iter().filter(|field| !new.iter().any(|other| other.name == field.name)) {
        out.push_str(&format!("{}: left out\n", safe(&gone.name)));
    }
    if new.is_empty() {
        out.push_str("no arguments\n");
    }
    for warning in warnings {
        out.push_str(&format!("warning: {}\n", safe(&warning)));
    }
    Ok(out)
}

/// Reads an argument text as strictly as the server will.
fn fields(tool: &str, text: &str) -> Result<(Vec<RenderField>, Vec<String>)> {
    let arguments = Arguments::parse(text, ARGUMENTS_MAX_BYTES).map_err(|error| {
        let at = if error.at.is_empty() { String::new() } else { format!(" at {}", error.at) };
        Fail::not_taken(format!("the edited arguments cannot be used{at}: {}", error.message))
            .hint("nothing was decided; they are one JSON object")
    })?;
    let agent = AgentName::new("editor").map_err(|error| Fail::new(error.to_string()))?;
    let definition = ToolDefinition::new(tool, "", serde_json::Value::Null);
    let render = render(&agent, &definition, &arguments, None);
    Ok((render.fields, render.warnings))
}

/// The editor a person has chosen, if any.
pub(crate) fn editor() -> Option<String> {
    ["VISUAL", "EDITOR"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.trim().is_empty()))
}

/// Opens the arguments in the editor, laid out on lines, and reads what was saved.
pub(crate) fn in_editor(editor: &str, arguments: &str) -> Result<String> {
    let file = Draft::new(&laid_out(arguments))?;
    // By the shell, because an editor is often a command with options.
    let status = std::process::Command::new("sh")
        .args(["-c", "exec $0 \"$1\"", editor])
        .arg(&file.path)
        .status()
        .map_err(|error| Fail::new(format!("the editor `{editor}` cannot be started: {error}")))?;
    if !status.success() {
        return Err(Fail::not_taken(format!("the editor `{editor}` failed; nothing was decided")));
    }
    let text = std::fs::read_to_string(&file.path)
        .map_err(|error| Fail::new(format!("what was edited cannot be read: {error}")))?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

/// The arguments as the editor is given them, and saves them where nothing was changed.
pub(crate) fn in_editor_form(arguments: &str) -> String {
    laid_out(arguments).trim_end_matches('\n').to_owned()
}

/// A file of one's own that is gone afterwards.
struct Draft {
    path: PathBuf,
}

impl Draft {
    fn new(text: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("holdpoint-{}.json", uuid::Uuid::new_v4()));
        let write = || {
            let mut file =
                std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            file.write_all(text.as_bytes())
        };
        write().map_err(|error: std::io::Error| {
            Fail::new(format!("`{}` cannot be written: {error}", path.display()))
        })?;
        Ok(Self { path })
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A JSON text on lines, for a person to edit. Only blanks between its tokens change: its order and its numbers stay.
fn laid_out(json: &str) -> String {
    let (mut out, mut depth, mut in_string, mut escaped) = (String::new(), 0_usize, false, false);
    let mut chars = json.chars().peekable();
    while let Some(c) = chars.next() {
        if in_string {
            out.push(c);
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            '"' => {
                in_string = true;
                out.push(c);
            }
            '{' | '[' => {
                out.push(c);
                while chars.next_if(char::is_ascii_whitespace).is_some() {}
                if let Some(close) = chars.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(close);
                } else {
                    depth += 1;
                    new_line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => out.push(c),
        }
    }
    out.push('\n');
    out
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laying_out_changes_blanks_alone() {
        let text = r#"{"z":1.10,"a":[1,{"b":"x, {y}: \" \\"}],"e":{},"f":[ ],"n":12345678901234567890}"#;
        let laid = laid_out(text);
        assert_eq!(
            laid,
            "{\n  \"z\": 1.10,\n  \"a\": [\n    1,\n    {\n      \"b\": \"x, {y}: \\\" \\\\\"\n    }\n  ],\n  \"e\": {},\n  \"f\": [],\n  \"n\": 12345678901234567890\n}\n"
        );
        assert_eq!(laid_out(&laid), laid);
    }

    #[test]
    fn an_edit_shows_every_field_and_says_which_are_new() {
        let style = Style::of(&std::fs::File::open("/dev/null").unwrap());
        let text = shown(
            "Write",
            r#"{"path":"a","mode":1,"x":0}"#,
            r#"{"path":"b","mode":1,"y":"\r"}"#,
            style,
            None,
        )
        .unwrap();
        assert_eq!(
            text,
            "as you changed it:\npath (changed):\n  │ b\nmode:\n  │ 1\ny (new):\n  │ \\r\nx: left out\nwarning: 1 invisible character\n"
        );
    }

    #[test]
    fn an_edit_that_cannot_be_read_says_where() {
        let style = Style::of(&std::fs::File::open("/dev/null").unwrap());
        for bad in [r#"{"a":1,"a":2}"#, "[1]", "{", "", "{} {}"] {
            match shown("Write", "{}", bad, style, None) {
                // Absent arguments are the empty object, as everywhere.
                Ok(text) => assert!(bad.is_empty() && text.contains("no arguments"), "{bad}: {text}"),
                Err(fail) => assert!(fail.to_string().contains("nothing was decided"), "{bad}: {fail}"),
            }
        }
    }
}
