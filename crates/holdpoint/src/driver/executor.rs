//! The executor. It takes a [`Permit`] and nothing else.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use holdpoint_core::business::NoKey;
use holdpoint_core::message::ResultContent;
use holdpoint_core::permit::Permit;
use holdpoint_core::run::{Input, Probed, ToolEnd};
use holdpoint_core::tool::EffectClass;
use holdpoint_protocol::ExecId;
use holdpoint_tools::{Invocation, Probe, Progress};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::recorded::{self, Record};
use super::{Driver, Inbox};
use crate::agent::TOOL_TIMEOUT_DEFAULT;

/// How often a tool's progress is passed on.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);
/// How long a tool gets to say whether an earlier execution took effect.
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);

impl Driver {
    /// The record of an execution, by the definition that the call was ruled on with: the one that is stored with the run, so
    /// that whoever takes it over finds the same key.
    fn record(&self, index: u32, exec: ExecId, arguments: &str) -> Result<Option<Record>, NoKey> {
        let slot = self.open.slots.get(index as usize);
        let Some(tool) = slot.and_then(|slot| slot.tool.as_ref()) else { return Ok(None) };
        Record::of(&self.rt.store, &self.cx, tool, exec, arguments)
    }

    /// Runs a permitted call on a task of its own: its panic is an answer, its time is its own.
    pub(super) fn execute(&mut self, permit: Permit) {
        let (index, attempt) = (permit.call().index, permit.attempt());
        let tx = self.seat.tx.clone();
        let Some(entry) = self.agent.tools.now().get(permit.tool()).cloned() else {
            // The check of the same step found it; a source has taken it away since.
            let end = ToolEnd::Error {
                code: "GATE_ERROR".into(),
                message: "the tool is gone".into(),
                not_executed: true,
            };
            let _ = tx.try_send(Inbox::Input(Input::Finished { index, attempt, end }));
            return;
        };
        let cancel = CancellationToken::new();
        self.running.insert(index, cancel.clone());
        let timeout = entry.definition.timeout().unwrap_or(TOOL_TIMEOUT_DEFAULT);
        let record = self.record(index, permit.exec(), permit.arguments());
        let progress = Reported { index, tx: tx.clone(), last: Mutex::new(None) };
        let invocation =
            Invocation::new(permit, Arc::clone(&self.context), cancel.clone(), Box::new(progress));
        let max = self.agent.settings.limits.result_bytes;
        let (store, term) = (Arc::clone(&self.rt.store), self.term);
        self.rt.tasks.spawn(async move {
            let record = match record {
                Ok(record) => record,
                Err(why) => {
                    let end = recorded::without_key(&why);
                    let _ = tx.send(Inbox::Input(Input::Finished { index, attempt, end })).await;
                    return;
                }
            };
            if let Some(record) = &record
                && let Some(end) = record.begin(&cancel).await
            {
                let _ = tx.send(Inbox::Input(Input::Finished { index, attempt, end })).await;
                return;
            }
            holdpoint_store::failpoint("before_tool");
            if term.is_none() || store.term() != term {
                // The process stood still since it was stored that the call starts: others may be at the run.
                let end = ToolEnd::Error {
                    code: "GATE_ERROR".into(),
                    message: "it was not started: this instance could not renew its lease in time".into(),
                    not_executed: true,
                };
                if let Some(record) = &record {
                    record.end(&end).await;
                }
                let _ = tx.send(Inbox::Input(Input::Finished { index, attempt, end })).await;
                return;
            }
            // Called inside of what is caught: a body may panic before it returns its future.
            let call = std::panic::AssertUnwindSafe(async { entry.tool.call(invocation).await });
            let mut call = std::pin::pin!(call.catch_unwind());
            let ended = tokio::time::timeout(timeout, &mut call).await;
            if ended.is_err() {
                // Before the future is dropped, so that what the tool started elsewhere hears of it.
                cancel.cancel();
            }
            holdpoint_store::failpoint("after_tool");
            let end = match ended {
                Ok(Ok(Ok(output))) => ToolEnd::Output(bounded(output.content, max)),
                // A tool that gives up because it was told to has not failed.
                Ok(Ok(Err(error))) if cancel.is_cancelled() && !error.not_executed => ToolEnd::Cancelled,
                Ok(Ok(Err(error))) if error.outcome_unknown => {
                    ToolEnd::Lost { code: error.code, message: bounded_text(error.message, max) }
                }
                Ok(Ok(Err(error))) => ToolEnd::Error {
                    code: error.code,
                    message: bounded_text(error.message, max),
                    not_executed: error.not_executed,
                },
                Ok(Err(_panic)) => ToolEnd::Panicked,
                Err(_elapsed) => ToolEnd::TimedOut,
            };
            if let Some(record) = &record {
                record.end(&end).await;
                holdpoint_store::failpoint("after_record");
            }
            let _ = tx.send(Inbox::Input(Input::Finished { index, attempt, end })).await;
        });
    }

    pub(super) fn probe(&mut self, index: u32, exec: ExecId) {
        let tx = self.seat.tx.clone();
        let name =
            self.open.slots.get(index as usize).map(|slot| slot.proposed.name.clone()).unwrap_or_default();
        let Some(entry) = self.agent.tools.now().get(&name).cloned() else {
            let _ = tx.try_send(Inbox::Input(Input::Probed { index, probe: Probed::Unknown }));
            return;
        };
        let context = Arc::clone(&self.context);
        let max = self.agent.settings.limits.result_bytes;
        let arguments = self.open.slots.get(index as usize).and_then(|slot| slot.arguments.as_ref());
        let record =
            arguments.and_then(|arguments| self.record(index, exec, arguments.text()).ok().flatten());
        let is_asked = entry.definition.effect == EffectClass::Verifiable;
        self.running.insert(index, CancellationToken::new());
        self.rt.tasks.spawn(async move {
            if let Some(record) = record {
                let said = record.probe().await;
                // A tool that can be asked knows better than a reservation that is missing.
                if let Some(probe) = said.filter(|said| !is_asked || matches!(said, Probed::Done(_))) {
                    let _ = tx.send(Inbox::Input(Input::Probed { index, probe })).await;
                    return;
                }
            }
            let asked = std::panic::AssertUnwindSafe(async { entry.tool.probe(exec, &context).await });
            let asked = asked.catch_unwind();
            let probe = match tokio::time::timeout(PROBE_TIMEOUT, asked).await {
                Ok(Ok(Probe::Done(output))) => Probed::Done(bounded(output.content, max)),
                Ok(Ok(Probe::NotDone)) => Probed::NotDone,
                Ok(Ok(Probe::Unknown) | Err(_)) | Err(_) => Probed::Unknown,
            };
            let _ = tx.send(Inbox::Input(Input::Probed { index, probe })).await;
        });
    }
}

struct Reported {
    index: u32,
    tx: mpsc::Sender<Inbox>,
    last: Mutex<Option<Instant>>,
}

impl Progress for Reported {
    fn report(&self, message: Option<&str>, fraction: Option<f64>) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|at| at.elapsed() < PROGRESS_EVERY) {
            return;
        }
        *last = Some(Instant::now());
        let message = message.map(str::to_owned);
        let fraction = fraction.filter(|f| (0.0..=1.0).contains(f));
        let _ = self.tx.try_send(Inbox::Input(Input::Progress { index: self.index, message, fraction }));
    }
}

/// A result within its bound. What is left out is said, with the digest of the whole.
fn bounded(content: ResultContent, max: usize) -> ResultContent {
    match content {
        ResultContent::Text(text) => ResultContent::Text(bounded_text(text, max)),
        ResultContent::Json(raw) if raw.get().len() > max => {
            ResultContent::Text(bounded_text(raw.get().to_owned(), max))
        }
        ResultContent::Json(raw) => ResultContent::Json(raw),
        ResultContent::Parts(parts) => {
            let content = ResultContent::Parts(parts);
            let whole = content.to_raw_json();
            if whole.get().len() > max {
                ResultContent::Text(bounded_text(whole.get().to_owned(), max))
            } else {
                content
            }
        }
    }
}

fn bounded_text(text: String, max: usize) -> String {
    if text.len() <= max {
        return text;
    }
    let digest: String = Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let whole = text.len();
    let mut cut = text;
    cut.truncate(cut.floor_char_boundary(max));
    format!("{cut}\n[the result was {whole} bytes; the rest was left out. sha256 of the whole: {digest}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_over_its_bound_is_cut_at_a_character_and_says_so_with_the_digest_of_the_whole() {
        let text = "ä".repeat(10);
        let cut = bounded_text(text.clone(), 7);
        assert!(cut.starts_with("äää\n[the result was 20 bytes"), "{cut}");
        let digest: String = Sha256::digest(text.as_bytes()).iter().map(|b| format!("{b:02x}")).collect();
        assert!(cut.ends_with(&format!("{digest}]")));
    }

    #[test]
    fn a_result_at_its_bound_stays_as_it_is() {
        assert_eq!(bounded_text("abc".into(), 3), "abc");
    }
}
