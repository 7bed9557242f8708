//! Nested values on lines, in the order of the text and with the digits of the text.

use crate::display::visible_quoted;
use crate::walk::Node;

/// What fits into so many characters stays on one line.
const LINE_MAX_CHARS: usize = 80;

/// How far in a line may begin. Deeper levels stay there, so that depth cannot blow up what is shown.
const INDENT_MAX: usize = 16;

/// The value laid out. The only line breaks in it are ours.
pub(super) fn pretty(node: &Node<'_>) -> String {
    let mut out = String::new();
    write(node, 0, &mut out);
    out
}

fn write(node: &Node<'_>, depth: usize, out: &mut String) {
    let start = out.len();
    if one_line(node, start + LINE_MAX_CHARS, out) {
        return;
    }
    out.truncate(start);
    match node {
        Node::Literal(literal) => out.push_str(literal),
        Node::Text(text) => out.push_str(&visible_quoted(text).text),
        Node::List(items) => {
            out.push('[');
            let mut line_start = out.len();
            for (at, item) in items.iter().enumerate() {
                // Numbers share lines: a vector of a thousand of them is no thousand lines.
                let shares =
                    matches!(item, Node::Literal(_)) && at > 0 && out.len() < line_start + LINE_MAX_CHARS;
                if shares {
                    out.push(' ');
                } else {
                    line_start = out.len();
                    new_line(depth + 1, out);
                }
                write(item, depth + 1, out);
                separate(at, items.len(), out);
            }
            new_line(depth, out);
            out.push(']');
        }
        Node::Map(entries) => {
            out.push('{');
            for (at, (key, item)) in entries.iter().enumerate() {
                new_line(depth + 1, out);
                out.push_str(&visible_quoted(key).text);
                out.push_str(": ");
                write(item, depth + 1, out);
                separate(at, entries.len(), out);
            }
            new_line(depth, out);
            out.push('}');
        }
    }
}

fn new_line(depth: usize, out: &mut String) {
    out.push('\n');
    out.push_str(&" ".repeat((depth * 2).min(INDENT_MAX)));
}

fn separate(at: usize, len: usize, out: &mut String) {
    if at + 1 < len {
        out.push(',');
    }
}

/// Writes the value without line breaks, unless it gets longer than `limit`; then what was written is void.
fn one_line(node: &Node<'_>, limit: usize, out: &mut String) -> bool {
    match node {
        Node::Literal(literal) => out.push_str(literal),
        Node::Text(text) if text.len() > LINE_MAX_CHARS => return false,
        Node::Text(text) => out.push_str(&visible_quoted(text).text),
        Node::List(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                if !one_line(item, limit, out) {
                    return false;
                }
            }
            out.push(']');
        }
        Node::Map(entries) => {
            out.push('{');
            for (at, (key, item)) in entries.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                if key.len() > LINE_MAX_CHARS {
                    return false;
                }
                out.push_str(&visible_quoted(key).text);
                out.push_str(": ");
                if !one_line(item, limit, out) {
                    return false;
                }
            }
            out.push('}');
        }
    }
    out.len() <= limit
}
