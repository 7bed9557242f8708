//! The checks made on every run: a benchmark that measures wrong behaviour measures nothing.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::{Value, json};

use crate::work::FINAL;

/// What one run left behind: written by the tools' bodies and the model.
#[derive(Debug, Default, Clone)]
pub struct Record {
    /// Names of the bodies that ran, in order.
    pub tools: Vec<&'static str>,
    /// The provider ids of the results the last model call saw, in order.
    pub seen: Vec<String>,
    /// When Bash was entered.
    pub bash_at: Option<Instant>,
    /// How often the model was asked.
    pub model_calls: u32,
}

impl Record {
    /// A body that ran.
    pub fn ran(&mut self, tool: &'static str) {
        if tool == "Bash" {
            self.bash_at = Some(Instant::now());
        }
        self.tools.push(tool);
    }

    fn count(&self, tool: &str) -> usize {
        self.tools.iter().filter(|name| **name == tool).count()
    }
}

/// Which turn the script made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// W1: c1 alone.
    Free,
    /// W2 to W4: c1, c2 declined, c3 approved.
    Gated,
}

impl Expect {
    /// The provider ids the second model call has to see, in this order.
    pub fn ids(self) -> &'static [&'static str] {
        match self {
            Self::Free => &["c1"],
            Self::Gated => &["c1", "c2", "c3"],
        }
    }
}

/// Deviations by kind: how often, and the last one seen.
#[derive(Debug, Default)]
pub struct Deviations(BTreeMap<&'static str, (u64, String)>);

impl Deviations {
    /// Counts one deviation.
    pub fn note(&mut self, kind: &'static str, what: impl Into<String>) {
        let entry = self.0.entry(kind).or_default();
        *entry = (entry.0 + 1, what.into());
    }

    /// Checks a run that ended with `text`.
    pub fn check(&mut self, text: &str, record: &Record, expect: Expect) {
        self.check_tools(text, record, expect);
        if record.seen != expect.ids() {
            self.note("result_order", format!("{:?}", record.seen));
        }
        if record.model_calls != 2 {
            self.note("model_calls", record.model_calls.to_string());
        }
    }

    /// Checks the answer and what ran; what the model saw is checked elsewhere.
    pub fn check_tools(&mut self, text: &str, record: &Record, expect: Expect) {
        let bash = usize::from(expect == Expect::Gated);
        if text != FINAL {
            self.note("final", text);
        }
        if record.count("Read") != 1 {
            self.note("read_count", format!("{:?}", record.tools));
        }
        if record.count("Write") != 0 {
            self.note("declined_ran", format!("{:?}", record.tools));
        }
        if record.count("Bash") != bash {
            self.note("approved_count", format!("{:?}", record.tools));
        }
    }

    /// Checks a run that waits for its decisions: nothing gated may have run.
    pub fn check_suspended(&mut self, record: &Record) {
        if record.tools != ["Read"] {
            self.note("ran_before_decision", format!("{:?}", record.tools));
        }
    }

    /// Takes over what another worker counted.
    pub fn merge(&mut self, other: Deviations) {
        for (kind, (count, sample)) in other.0 {
            let entry = self.0.entry(kind).or_default();
            *entry = (entry.0 + count, sample);
        }
    }

    /// Whether every check held.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts by kind, as the line prints them.
    pub fn counts(&self) -> Value {
        json!(self.0.iter().map(|(kind, (count, _))| (*kind, *count)).collect::<BTreeMap<_, _>>())
    }

    /// One sample by kind.
    pub fn samples(&self) -> Value {
        json!(self.0.iter().map(|(kind, (_, sample))| (*kind, sample.as_str())).collect::<BTreeMap<_, _>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Record {
        Record {
            tools: vec!["Read", "Bash"],
            seen: vec!["c1".into(), "c2".into(), "c3".into()],
            bash_at: Some(Instant::now()),
            model_calls: 2,
        }
    }

    #[test]
    fn a_right_run_has_no_deviation() {
        let mut found = Deviations::default();
        found.check(FINAL, &good(), Expect::Gated);
        assert!(found.is_empty(), "{}", found.samples());
    }

    #[test]
    fn every_wrong_run_is_counted() {
        type Spoil = fn(&mut Record);
        let cases: [(&str, Spoil); 5] = [
            ("read_count", |r| r.tools.push("Read")),
            ("declined_ran", |r| r.tools.push("Write")),
            ("approved_count", |r| r.tools.retain(|t| *t != "Bash")),
            ("result_order", |r| r.seen.swap(1, 2)),
            ("model_calls", |r| r.model_calls = 3),
        ];
        for (kind, spoil) in cases {
            let (mut record, mut found) = (good(), Deviations::default());
            spoil(&mut record);
            found.check(FINAL, &record, Expect::Gated);
            assert_eq!(found.counts(), json!({ kind: 1 }));
        }
        let mut found = Deviations::default();
        found.check("gone", &good(), Expect::Gated);
        assert_eq!(found.counts(), json!({"final": 1}));
    }
}
