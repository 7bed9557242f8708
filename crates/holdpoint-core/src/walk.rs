//! A walk over the raw text of arguments that are already known to be good.
//!
//! A parsed `serde_json::Value` has lost two things a person must see: the order of the keys as they were
//! written, and the digits of a number. This walk keeps both. It is only ever given a text that
//! [`crate::arguments::Arguments::parse`] has accepted, so it checks nothing, and its recursion is bounded by
//! the depth that was accepted.

use std::borrow::Cow;

/// One value, as it stands in the text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node<'a> {
    /// A number, `true`, `false` or `null`: its own characters.
    Literal(&'a str),
    /// A string, decoded.
    Text(Cow<'a, str>),
    /// An array.
    List(Vec<Node<'a>>),
    /// An object: its keys, decoded, in the order of the text.
    Map(Vec<(Cow<'a, str>, Node<'a>)>),
}

/// Reads the whole text.
pub(crate) fn walk(text: &str) -> Node<'_> {
    Cursor { text, at: 0 }.value()
}

/// The JSON pointer of the literal that begins at this byte of the text.
pub(crate) fn pointer_to(text: &str, offset: usize) -> String {
    fn find(node: &Node<'_>, wanted: *const u8, path: &mut Vec<String>) -> bool {
        match node {
            Node::Literal(literal) => std::ptr::eq(literal.as_ptr(), wanted),
            Node::Text(_) => false,
            Node::List(items) => {
                items.iter().enumerate().any(|(i, item)| step(i.to_string(), item, wanted, path))
            }
            Node::Map(entries) => entries.iter().any(|(key, item)| step(key.to_string(), item, wanted, path)),
        }
    }
    fn step(name: String, node: &Node<'_>, wanted: *const u8, path: &mut Vec<String>) -> bool {
        path.push(name);
        let found = find(node, wanted, path);
        if !found {
            path.pop();
        }
        found
    }
    let mut path = Vec::new();
    find(&walk(text), text.as_bytes()[offset..].as_ptr(), &mut path);
    pointer(path.iter().map(String::as_str))
}

/// Joins steps to a JSON pointer (RFC 6901).
pub(crate) fn pointer<'s>(steps: impl Iterator<Item = &'s str>) -> String {
    let mut out = String::new();
    for step in steps {
        out.push('/');
        out.push_str(&step.replace('~', "~0").replace('/', "~1"));
    }
    out
}

struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    fn skip_blank(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
    }

    /// Steps over `wanted` and the blanks before it, if it is next.
    fn eat(&mut self, wanted: u8) -> bool {
        self.skip_blank();
        let there = self.peek() == wanted;
        self.at += usize::from(there);
        there
    }

    fn value(&mut self) -> Node<'a> {
        self.skip_blank();
        match self.peek() {
            b'{' => self.map(),
            b'[' => self.list(),
            b'"' => Node::Text(self.string()),
            _ => self.literal(),
        }
    }

    fn map(&mut self) -> Node<'a> {
        self.at += 1;
        let mut entries = Vec::new();
        while !self.eat(b'}') && self.at < self.text.len() {
            self.skip_blank();
            let key = self.string();
            self.eat(b':');
            entries.push((key, self.value()));
            self.eat(b',');
        }
        Node::Map(entries)
    }

    fn list(&mut self) -> Node<'a> {
        self.at += 1;
        let mut items = Vec::new();
        while !self.eat(b']') && self.at < self.text.len() {
            items.push(self.value());
            self.eat(b',');
        }
        Node::List(items)
    }

    fn string(&mut self) -> Cow<'a, str> {
        let start = self.at;
        let end = string_end(self.text.as_bytes(), start);
        self.at = end;
        let quoted = &self.text[start..end];
        match quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            Some(plain) if !plain.contains('\\') => Cow::Borrowed(plain),
            // A text that was accepted decodes; were it ever not so, its own characters are shown.
            _ => serde_json::from_str(quoted).map_or(Cow::Borrowed(quoted), Cow::Owned),
        }
    }

    fn literal(&mut self) -> Node<'a> {
        let start = self.at;
        // At least one byte, so that the walk always ends.
        self.at += 1;
        while self.at < self.text.len() && !b" \t\n\r,]}".contains(&self.peek()) {
            self.at += 1;
        }
        Node::Literal(self.text.get(start..self.at).unwrap_or_default())
    }
}

/// The byte after the string that begins at `start`.
pub(crate) fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_digits_are_kept() {
        let Node::Map(entries) =
            walk(r#" { "b" : 1.10 , "10":[ 9007199254740993,{}, []],"9":"a\"\u0041" } "#)
        else {
            panic!("an object")
        };
        let keys: Vec<_> = entries.iter().map(|(key, _)| key.as_ref()).collect();
        assert_eq!(keys, ["b", "10", "9"]);
        assert_eq!(entries[0].1, Node::Literal("1.10"));
        assert_eq!(
            entries[1].1,
            Node::List(vec![Node::Literal("9007199254740993"), Node::Map(vec![]), Node::List(vec![])])
        );
        assert_eq!(entries[2].1, Node::Text("a\"A".into()));
    }

    #[test]
    fn a_literal_is_found_by_its_place() {
        let text = r#"{"a":[1,{"x/y":2}],"b":2}"#;
        assert_eq!(pointer_to(text, text.find("2}]").unwrap()), "/a/1/x~1y");
        assert_eq!(pointer_to(text, text.rfind('2').unwrap()), "/b");
    }
}
