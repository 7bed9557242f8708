//! Lists: what waits, what runs, what happened.

use holdpoint_protocol::{FinishStatus, RunId, RunStatus, RunView};

use crate::access;
use crate::args::{Audit, Cancel, List, Runs};
use crate::client::Client;
use crate::fail::{Fail, Result};
use crate::request;
use crate::term;
use crate::text::{json_line, line};

/// `inbox`.
pub(crate) async fn inbox(args: List) -> Result<()> {
    let client = access::client(&args.at.server)?;
    let mut count = 0_usize;
    client
        .pending(|interaction| {
            count += 1;
            if args.json {
                print_json(&interaction);
            } else {
                let until = interaction.deadline.map(|deadline| {
                    format!("  ({})", request::at_deadline(deadline, interaction.on_timeout, None))
                });
                term::out(&format!(
                    "{}  {}  {:8}  {}{}",
                    interaction.request_id,
                    interaction.created_at,
                    request::kind(interaction.kind),
                    request::title(&interaction),
                    until.unwrap_or_default()
                ));
            }
        })
        .await?;
    if count == 0 && !args.json {
        term::say("nothing waits for a decision");
    }
    Ok(())
}

/// `runs`.
pub(crate) async fn runs(args: Runs) -> Result<()> {
    let client = access::client(&args.list.at.server)?;
    let status = args.status.as_deref();
    let known = STATUSES.iter().chain(&ENDINGS);
    if let Some(unknown) = status.filter(|status| !known.clone().any(|word| word == status)) {
        let known: Vec<&str> = known.copied().collect();
        return Err(Fail::usage(format!("no run stands as `{}`", line(unknown)))
            .hint(format!("there are: {}", known.join(", "))));
    }
    // How a run ended is not what the server lists by: of those that ended, the rest is left out here.
    let ending = status.filter(|status| ENDINGS.contains(status));
    let status = if ending.is_some() { Some("finished") } else { status };
    let mut count = 0_usize;
    client
        .runs(status, |run| {
            if ending.is_some_and(|ending| ending != stands(&run)) {
                return;
            }
            count += 1;
            if args.list.json {
                print_json(&run);
            } else {
                term::out(&run_line(&run));
            }
        })
        .await?;
    if count == 0 && !args.list.json {
        term::say("there are no such runs");
    }
    Ok(())
}

/// How a run can stand while it goes on or when it is over.
const STATUSES: [&str; 6] = ["running", "suspended", "cancelling", "finished", "failed", "quarantined"];
/// How a run that is finished can have ended.
const ENDINGS: [&str; 5] = ["success", "stopped", "limit_exceeded", "cancelled", "superseded"];

/// How a run stands, or how it ended.
fn stands(run: &RunView) -> &'static str {
    match run.finish {
        Some(FinishStatus::Success) => "success",
        Some(FinishStatus::Stopped) => "stopped",
        Some(FinishStatus::LimitExceeded) => "limit_exceeded",
        Some(FinishStatus::Cancelled) => "cancelled",
        Some(FinishStatus::Superseded) => "superseded",
        None => match run.status {
            RunStatus::Running => "running",
            RunStatus::Suspended => "suspended",
            RunStatus::Cancelling => "cancelling",
            RunStatus::Finished => "finished",
            RunStatus::Failed => "failed",
            RunStatus::Quarantined => "quarantined",
        },
    }
}

fn run_line(run: &RunView) -> String {
    let stands = stands(run);
    let waits = match run.pending.len() {
        0 => String::new(),
        waits => format!("  {waits} pending"),
    };
    format!("{}  {}  {stands:14}  {}{waits}", run.run_id, run.created_at, line(run.agent.as_str()))
}

/// `cancel`.
pub(crate) async fn cancel(args: Cancel) -> Result<()> {
    let client = access::client(&args.at.server)?;
    if client.cancel(args.id).await? {
        term::out(&format!("cancelled {}", args.id));
        return Ok(());
    }
    let run = client.run(args.id).await?;
    Err(Fail::new(format!("run {} had already ended ({})", args.id, stands(&run))))
}

/// `audit`.
pub(crate) async fn audit(args: Audit) -> Result<()> {
    let client = access::client(&args.at.server)?;
    let run = match (args.run, args.verify) {
        (Some(run), false) => run,
        (run, true) => return verify(&client, run).await,
        (None, false) => {
            return Err(Fail::usage("whose record is to be printed?").hint(
                "name a run; `holdpoint runs` lists them. `holdpoint audit --verify` checks all of them",
            ));
        }
    };
    client.audit(run, |record| term::out(record.get())).await
}

/// Checks records, and prints how each was found. One that is broken is a failure.
async fn verify(client: &Client, run: Option<RunId>) -> Result<()> {
    let (mut whole, mut broken) = (0_usize, 0_usize);
    client
        .verify_audit(run, |chain| {
            if chain.whole {
                whole += 1
            } else {
                broken += 1
            }
            print_json(&chain);
        })
        .await?;
    if broken > 0 {
        return Err(Fail::new(format!(
            "{broken} of {} records were changed after they were written",
            whole + broken
        ))
        .hint("`brokenAt` names the first row of each that is not what it was"));
    }
    Ok(())
}

fn print_json(row: &impl serde::Serialize) {
    match serde_json::to_string(row) {
        Ok(json) => term::out(&json_line(&json)),
        Err(error) => term::say(&format!("a row cannot be written: {error}")),
    }
}
