//! What is different between two listings, for a person.

use std::collections::BTreeMap;

use holdpoint_core::tool::ToolDefinition;
use serde_json::Value;

use super::definition::Offered;
use crate::{ChangeKind, ToolChange};

/// The most lines of one change that are written out; the others are counted.
const LINES_MAX: usize = 40;
/// A value is cut at this many characters.
const VALUE_MAX_CHARS: usize = 400;

pub fn changes(old: &[Offered], new: &[Offered]) -> Vec<ToolChange> {
    let old: BTreeMap<&str, &Offered> = old.iter().map(|one| (one.definition.name.as_str(), one)).collect();
    let new: BTreeMap<&str, &Offered> = new.iter().map(|one| (one.definition.name.as_str(), one)).collect();
    let mut changes = Vec::new();
    for (name, now) in &new {
        let (kind, what) = match old.get(name) {
            None => (ChangeKind::Added, now.definition.description.clone()),
            Some(before) if before.digest != now.digest => {
                (ChangeKind::Changed, difference(&before.definition, &now.definition))
            }
            Some(_) => continue,
        };
        changes.push(ToolChange {
            tool: (*name).to_owned(),
            kind,
            what: clip(&what, LINES_MAX * VALUE_MAX_CHARS),
        });
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        let what = "the server does not list it any more".into();
        changes.push(ToolChange { tool: (*name).to_owned(), kind: ChangeKind::Removed, what });
    }
    changes
}

fn difference(old: &ToolDefinition, new: &ToolDefinition) -> String {
    let mut lines = Vec::new();
    if old.description != new.description {
        lines.push("description".into());
        lines.push(format!("- {}", clip(&format!("{:?}", old.description), VALUE_MAX_CHARS)));
        lines.push(format!("+ {}", clip(&format!("{:?}", new.description), VALUE_MAX_CHARS)));
    }
    compare("schema", &old.schema, &new.schema, &mut lines);
    let more = lines.len().saturating_sub(LINES_MAX);
    lines.truncate(LINES_MAX);
    if more > 0 {
        lines.push(format!("and {more} lines more"));
    }
    lines.join("\n")
}

fn compare(path: &str, old: &Value, new: &Value, lines: &mut Vec<String>) {
    if old == new {
        return;
    }
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        lines.push(path.to_owned());
        lines.push(format!("- {}", clip(&old.to_string(), VALUE_MAX_CHARS)));
        lines.push(format!("+ {}", clip(&new.to_string(), VALUE_MAX_CHARS)));
        return;
    };
    for (key, value) in after {
        let path = format!("{path}.{key}");
        match before.get(key) {
            Some(old) => compare(&path, old, value, lines),
            None => {
                lines.push(path);
                lines.push(format!("+ {}", clip(&value.to_string(), VALUE_MAX_CHARS)));
            }
        }
    }
    for (key, value) in before.iter().filter(|(key, _)| !after.contains_key(*key)) {
        lines.push(format!("{path}.{key}"));
        lines.push(format!("- {}", clip(&value.to_string(), VALUE_MAX_CHARS)));
    }
}

fn clip(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}… ({} bytes in all)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn offered(name: &str, description: &str, schema: Value) -> Offered {
        let definition = ToolDefinition::new(name, description, schema);
        let digest = holdpoint_core::digest::definition_digest(&definition).to_string();
        Offered { definition, wire_name: name.into(), digest }
    }

    #[test]
    fn a_change_says_what_was_there_and_what_is() {
        let old = [
            offered("same", "x", json!({})),
            offered(
                "mail",
                "Sends it.",
                json!({"type": "object", "properties": {"to": {"type": "string"}, "x": {}}}),
            ),
            offered("gone", "x", json!({})),
        ];
        let new = [
            offered("same", "x", json!({})),
            offered(
                "mail",
                "Sends it, and a copy to us.",
                json!({"type": "object", "properties": {"to": {"type": "array"}, "also_notify": {}}}),
            ),
            offered("fresh", "A new one.", json!({})),
        ];
        let changes = changes(&old, &new);
        let kinds: Vec<_> = changes.iter().map(|change| (change.tool.as_str(), change.kind)).collect();
        assert_eq!(
            kinds,
            [("fresh", ChangeKind::Added), ("mail", ChangeKind::Changed), ("gone", ChangeKind::Removed)]
        );
        assert_eq!(
            changes[1].what,
            "description\n- \"Sends it.\"\n+ \"Sends it, and a copy to us.\"\n\
             schema.properties.also_notify\n+ {}\n\
             schema.properties.to.type\n- \"string\"\n+ \"array\"\n\
             schema.properties.x\n- {}"
        );
    }

    #[test]
    fn a_change_without_end_is_cut_and_says_so() {
        let many: serde_json::Map<_, _> = (0..100).map(|number| (format!("p{number}"), json!({}))).collect();
        let old = [offered("a", "", json!({"properties": {}}))];
        let new = [offered("a", &"x".repeat(1_000), json!({"properties": many}))];
        let what = &changes(&old, &new)[0].what;
        assert!(what.ends_with("and 163 lines more") && what.contains("… (1002 bytes in all)"), "{what}");
        assert_eq!(what.lines().count(), LINES_MAX + 1);
    }
}
