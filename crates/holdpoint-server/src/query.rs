//! The query part of a URL. It narrows lists and shapes streams; it never decides, starts or authenticates anything.

use std::str::FromStr;

use holdpoint::store::{PAGE_MAX, PageRequest};
use serde::de::DeserializeOwned;

use crate::refusal::Refusal;

/// Parameters that are looked at; what comes after them is not read.
const PARAMETERS_MAX: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    pub(crate) fn read(text: &str) -> Self {
        let pairs = form_urlencoded::parse(text.as_bytes())
            .take(PARAMETERS_MAX)
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        Self { pairs }
    }

    /// A parameter; twice is once too often.
    pub(crate) fn get(&self, name: &str) -> Result<Option<&str>, Refusal> {
        let mut values = self.pairs.iter().filter(|(key, _)| key == name);
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some((_, value)), None) => Ok(Some(value)),
            (Some(_), Some(_)) => Err(bad(name, "is there twice")),
        }
    }

    pub(crate) fn parsed<T: FromStr>(&self, name: &str) -> Result<Option<T>, Refusal> {
        self.get(name)?.map(|text| text.parse().map_err(|_| bad(name, "cannot be read"))).transpose()
    }

    /// A parameter that is one of the words of an enum.
    pub(crate) fn word<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Refusal> {
        let Some(text) = self.get(name)? else { return Ok(None) };
        let word = serde_json::Value::String(text.to_owned());
        serde_json::from_value(word).map(Some).map_err(|_| bad(name, "is not a word that is known there"))
    }

    /// Refuses parameters that a list does not know: a misspelt filter would show everything.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), Refusal> {
        match self.pairs.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(_) => {
                let detail =
                    format!("a parameter of the query is not known; known are: {}", known.join(", "));
                Err(Refusal::bad_request("bad_query", detail))
            }
        }
    }

    /// `cursor` and `limit`. A page never holds more than [`PAGE_MAX`] rows, whatever is asked for.
    pub(crate) fn page(&self) -> Result<PageRequest, Refusal> {
        let limit = self.parsed::<u64>("limit")?;
        if limit == Some(0) {
            return Err(bad("limit", "is at least 1"));
        }
        let default = PageRequest::default();
        let limit =
            limit.map_or(default.limit, |limit| usize::try_from(limit).unwrap_or(PAGE_MAX).min(PAGE_MAX));
        Ok(PageRequest { cursor: self.get("cursor")?.map(str::to_owned), limit })
    }
}

fn bad(name: &str, why: &str) -> Refusal {
    Refusal::bad_request("bad_query", format!("the parameter `{name}` {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_bounded_whatever_is_asked_for() {
        for (query, limit) in [
            ("", Some(50)),
            ("limit=1", Some(1)),
            ("limit=200", Some(PAGE_MAX)),
            ("limit=201", Some(PAGE_MAX)),
            ("limit=1000000000", Some(PAGE_MAX)),
            ("limit=0", None),
            ("limit=-1", None),
            ("limit=x", None),
            ("limit=99999999999999999999999", None),
            ("limit=1&limit=2", None),
        ] {
            let page = Query::read(query).page();
            assert_eq!(page.as_ref().ok().map(|page| page.limit), limit, "{query}");
        }
    }
}
