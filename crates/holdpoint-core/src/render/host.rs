//! Where a URL really leads: its host set apart, user info named, both forms of an international name.

mod punycode;

use crate::display::visible;

/// The dots that resolvers take for a dot.
const DOTS: [char; 4] = ['.', '\u{3002}', '\u{ff0e}', '\u{ff61}'];

/// The host of a URL, in the form a resolver asks for and in the form a person reads.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Host {
    ascii: String,
    unicode: String,
    percent: bool,
    user_info: bool,
}

impl Host {
    /// The host, and beside it its other form where there is one.
    pub(super) fn both_forms(&self) -> String {
        if self.ascii == self.unicode {
            visible(&self.ascii).text
        } else {
            format!("{} (reads as {})", visible(&self.ascii).text, visible(&self.unicode).text)
        }
    }
}

/// The host, if the whole text is one URL.
pub(super) fn of_url(text: &str) -> Option<Host> {
    if text.contains([' ', '\n']) {
        return None;
    }
    urls(text).next().filter(|url| url.at == 0).map(|url| url.host)
}

/// What a reader should know about the URLs in a text.
pub(super) fn warnings(text: &str) -> impl Iterator<Item = String> {
    urls(text).filter_map(|Url { host, .. }| {
        let what = if host.user_info {
            "what stands before the @ is a user name; the host is"
        } else if host.percent {
            "percent-encoded host"
        } else if host.ascii != host.unicode {
            "international host"
        } else {
            return None;
        };
        Some(format!("{what} {}", host.both_forms()))
    })
}

struct Url {
    /// Where its scheme begins.
    at: usize,
    host: Host,
}

/// The URLs of a text: a scheme, a colon and two slashes of either kind.
fn urls(text: &str) -> impl Iterator<Item = Url> {
    text.match_indices(':').filter_map(move |(colon, _)| {
        let before = &text[..colon];
        let name = before.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || "+-.".contains(c));
        let scheme = &before[name.len()..];
        let slash = |c: char| c == '/' || c == '\\';
        let rest = text[colon + 1..].strip_prefix(slash)?.strip_prefix(slash)?;
        scheme
            .starts_with(|c: char| c.is_ascii_alphabetic())
            .then(|| Url { at: name.len(), host: host(rest) })
    })
}

/// Reads the host as browsers do: up to the first slash of either kind, after the last `@`, without the port.
fn host(rest: &str) -> Host {
    let ends = |c: char| "/\\?#\"<> ".contains(c) || c.is_ascii_control();
    let authority = rest.split(ends).next().unwrap_or(rest);
    let (user_info, host) = match authority.rsplit_once('@') {
        Some((_, host)) => (true, host),
        None => (false, authority),
    };
    let host = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty() => name,
        Some(_) | None => host,
    };
    let labels = || host.split(DOTS);
    Host {
        ascii: labels().map(to_ascii).collect::<Vec<_>>().join("."),
        unicode: labels().map(to_unicode).collect::<Vec<_>>().join("."),
        percent: host.contains('%'),
        user_info,
    }
}

fn to_ascii(label: &str) -> String {
    if label.is_ascii() {
        return label.to_owned();
    }
    let lower = label.to_lowercase();
    punycode::encode(&lower).map_or(lower, |ascii| format!("xn--{ascii}"))
}

fn to_unicode(label: &str) -> String {
    let prefixed = label.get(..4).is_some_and(|prefix| prefix.eq_ignore_ascii_case("xn--"));
    let decoded = if prefixed { punycode::decode(&label[4..].to_ascii_lowercase()) } else { None };
    decoded.unwrap_or_else(|| label.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rules for showing a URL in the MCP specification's elicitation.
    #[test]
    fn the_host_is_where_the_url_leads() {
        for (url, host) in [
            ("https://bank.example@203.0.113.9/", "203.0.113.9"),
            ("https://bank.example:pw@203.0.113.9:8443/x?y=@z", "203.0.113.9"),
            ("https://xn--cme-6cd.example/", "xn--cme-6cd.example (reads as c\u{430}me.example)"),
            ("https://c\u{430}me.example/", "xn--cme-6cd.example (reads as c\u{430}me.example)"),
            ("https://bank.example\u{2044}@evil.example", "evil.example"),
            ("https://bank.example\\@evil.example", "bank.example"),
            ("https:\\\\bank.example@evil.example\\x", "evil.example"),
            ("https://bank\u{3002}example/", "bank.example (reads as bank.example)"),
            ("http://[2001:db8::1]:80/", "[2001:db8::1]"),
            ("http://[2001:db8::1]/", "[2001:db8::1]"),
            ("ftp://files.example", "files.example"),
            ("https://evil.example?@bank.example", "evil.example"),
            ("https://m\u{fc}nchen.example/", "xn--mnchen-3ya.example (reads as m\u{fc}nchen.example)"),
        ] {
            let found = of_url(url).unwrap().both_forms();
            assert_eq!(found, host.replace("bank.example (reads as bank.example)", "bank.example"), "{url}");
        }
        assert_eq!(of_url("no url"), None);
        assert_eq!(of_url("see https://bank.example"), None);
        assert_eq!(of_url("12:// x"), None);
    }

    #[test]
    fn only_what_deceives_is_warned_of() {
        assert_eq!(warnings("https://bank.example/a@b and http://[::1]/ and C:\\\\x").count(), 0);
        for (text, said) in [
            ("pay at https://bank.example@203.0.113.9/ now", "the host is 203.0.113.9"),
            ("x https://xn--cme-6cd.example/", "reads as c\u{430}me.example"),
            ("https://bank.example\u{2044}@evil.example", "the host is evil.example"),
            ("https://%65vil.example/", "percent-encoded host"),
        ] {
            let found: Vec<_> = warnings(text).collect();
            assert!(found.len() == 1 && found[0].contains(said), "{found:?}");
        }
    }
}
