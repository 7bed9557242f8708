//! What a person is shown of a call, made from the tool's identity and the arguments alone.
//!
//! What the model or a tool's server says about the call is shown too, quoted and labelled as unverified, and
//! never in the heading. Labels of our own contain a space; an argument's name that is not a plain word is
//! shown in quotes, so that no argument can pass for one of our labels. Warnings point at what a reader would
//! miss; they claim nothing about what a call will do.

mod command;
mod host;
mod layout;
mod script;
mod warnings;

use std::borrow::Cow;

use holdpoint_protocol::{AgentName, Render, RenderField};

use crate::arguments::Arguments;
use crate::display::{Shown, visible, visible_quoted};
use crate::tool::ToolDefinition;
use crate::walk::{Node, walk};

use warnings::{Kind, Path, thousands};

pub use command::opaque_command;
pub use warnings::WARNINGS_PER_KIND_MAX;

/// From how many characters on a value's length is said.
pub const LONG_VALUE_CHARS: usize = 1_000;

const AGENT_SAYS: &str = "agent says (unverified)";
const SERVER_SAYS: &str = "server says (unverified)";
const MCP_ORIGIN: &str = "mcp:";

/// What to show of a call.
///
/// `text_of_model` is what the model wrote beside the call; it is the last field.
pub fn render(
    agent: &AgentName,
    tool: &ToolDefinition,
    arguments: &Arguments,
    text_of_model: Option<&str>,
) -> Render {
    let mut page = Page { shell_tool: command::is_shell_tool(&tool.name), ..Page::default() };
    if let Node::Map(entries) = walk(arguments.text()) {
        for (key, node) in &entries {
            page.argument(key, node);
        }
    }
    if let Some(claims) = &tool.claims {
        page.said(SERVER_SAYS, visible_quoted(claims));
    }
    if let Some(text) = text_of_model.filter(|text| !text.trim().is_empty()) {
        page.said(AGENT_SAYS, visible(text));
    }
    page.finish(title(agent, tool))
}

/// The heading: who wants to run which tool of whom.
fn title(agent: &AgentName, tool: &ToolDefinition) -> String {
    match tool.origin.strip_prefix(MCP_ORIGIN) {
        Some(server) => {
            // The name the model calls it by is `server__tool`; a person reads the two apart.
            let own = tool.name.strip_prefix(server).and_then(|rest| rest.strip_prefix("__"));
            let name = visible(own.unwrap_or(&tool.name)).text;
            format!("{agent} wants to run {} / {name}", visible(server).text)
        }
        None => format!("{agent} wants to run {}", visible(&tool.name).text),
    }
}

#[derive(Default)]
struct Page {
    fields: Vec<RenderField>,
    shell_tool: bool,
    invisible: usize,
    opaque: Kind,
    hosts: Kind,
    scripts: Kind,
    lengths: Kind,
}

impl Page {
    fn argument(&mut self, key: &str, node: &Node<'_>) {
        let path = Path::Argument(key);
        self.look_at(&path, key, false);
        self.look_into(&path, node, self.shell_tool || command::is_shell_argument(key));
        let name = label(key);
        self.fields.push(RenderField { name: name.to_string(), value: value(node) });
        if let Node::Text(text) = node
            && let Some(host) = host::of_url(text)
        {
            self.fields.push(RenderField { name: format!("{name} (host)"), value: host.both_forms() });
        }
    }

    /// Looks at every string of a value.
    fn look_into(&mut self, path: &Path<'_>, node: &Node<'_>, in_shell: bool) {
        match node {
            Node::Literal(literal) => self.length(path, literal.len(), 0),
            Node::Text(text) => {
                let shown = self.look_at(path, text, in_shell);
                self.length(path, shown.chars, shown.runs);
            }
            Node::List(items) => {
                for (at, item) in items.iter().enumerate() {
                    self.look_into(&Path::Item(path, at), item, in_shell);
                }
            }
            Node::Map(entries) => {
                for (key, item) in entries {
                    let path = Path::Key(path, key);
                    self.look_at(&path, key, false);
                    self.look_into(&path, item, in_shell || command::is_shell_argument(key));
                }
            }
        }
    }

    fn look_at(&mut self, path: &Path<'_>, text: &str, in_shell: bool) -> Shown {
        let shown = visible(text);
        self.invisible += shown.invisible;
        let reasons = command::reasons(text, in_shell);
        if !reasons.is_empty() {
            self.opaque
                .add(path, format_args!("effect cannot be read from the text ({})", reasons.join(", ")));
        }
        host::warnings(text).for_each(|warning| self.hosts.add(path, warning));
        if let Some(warning) = script::warning(text) {
            self.scripts.add(path, warning);
        }
        shown
    }

    fn length(&mut self, path: &Path<'_>, chars: usize, runs: usize) {
        if chars >= LONG_VALUE_CHARS || runs > 0 {
            self.lengths.add(path, format_args!("{} characters", thousands(chars)));
        }
    }

    fn said(&mut self, label: &str, shown: Shown) {
        self.invisible += shown.invisible;
        self.fields.push(RenderField { name: label.to_owned(), value: shown.text });
    }

    fn finish(self, title: String) -> Render {
        let mut warnings = Vec::new();
        match self.invisible {
            0 => {}
            1 => warnings.push("1 invisible character".to_owned()),
            many => warnings.push(format!("{} invisible characters", thousands(many))),
        }
        for kind in [self.opaque, self.hosts, self.scripts, self.lengths] {
            kind.write(&mut warnings);
        }
        Render { title, fields: self.fields, warnings }
    }
}

/// The name of an argument: a plain word as it is, anything else in quotes.
fn label(key: &str) -> Cow<'_, str> {
    let plain = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-$".contains(&b));
    if plain { Cow::Borrowed(key) } else { Cow::Owned(visible_quoted(key).text) }
}

/// A value on its own: a string without quotes, unless it would then read as something else.
fn value(node: &Node<'_>) -> String {
    match node {
        Node::Text(text) if reads_as_itself(text) => visible(text).text,
        Node::Text(text) => visible_quoted(text).text,
        Node::Literal(_) | Node::List(_) | Node::Map(_) => layout::pretty(node),
    }
}

fn reads_as_itself(text: &str) -> bool {
    let edges = [text.chars().next(), text.chars().next_back()];
    let blank_edge = edges.iter().any(|edge| edge.is_none_or(|c| c == ' '));
    let like_json = text.starts_with(['{', '[', '"'])
        || (text.len() <= 64 && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok());
    !blank_edge && !like_json
}

#[cfg(test)]
mod tests;
