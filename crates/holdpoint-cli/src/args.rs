//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use holdpoint_protocol::{RequestId, RunId};

use crate::client::SERVER_DEFAULT;

/// What `doctor` says to a script.
const DOCTOR_EXITS: &str = "\
Each thing that is looked at is marked `ok`, `note` (to be known, and not wrong) or `WRONG`.
It changes nothing. Commits are measured with records that mean nothing, in a file beside the database or in PostgreSQL's log.

Exit codes:
  0  nothing is wrong; there may be notes
  1  something is WRONG, or the database cannot be looked at
  2  the command line or the configuration cannot be used";

/// An AI agent that stops where you said it must.
#[derive(Debug, Parser)]
#[command(name = "holdpoint", version, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// How much is logged to standard error: error, warn, info, debug [env: HOLDPOINT_LOG]
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(crate) log: Option<tracing::Level>,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server on a configuration
    Serve(Serve),
    /// Try it: a folder of messy files, an agent that wants to tidy it, and you
    Demo(Demo),
    /// Look at the database of a configuration, and say what to do about what is wrong
    #[command(after_help = DOCTOR_EXITS)]
    Doctor(Serve),
    /// Talk to an agent of a server, and decide what it asks
    Chat(Chat),
    /// List what waits for a decision
    Inbox(List),
    /// Show a request, whole
    Show(Show),
    /// Let a call run, as it is or as you change it
    Approve(Approve),
    /// Change a call in your editor, then let it run
    Edit(One),
    /// Refuse a call
    Decline(Decline),
    /// Refuse a call, and tell the agent what to do instead
    Feedback(Feedback),
    /// In doubt: say that a call ran, and what came of it
    Ran(Ran),
    /// In doubt: leave a call as unknown
    Leave(One),
    /// List runs
    Runs(Runs),
    /// Cancel a run
    Cancel(Cancel),
    /// Print the record of a run, or check records
    Audit(Audit),
}

/// Which server, and who asks.
#[derive(Debug, Args)]
pub(crate) struct At {
    /// The server
    #[arg(long, default_value = SERVER_DEFAULT, value_name = "URL")]
    pub(crate) server: String,
}

/// `serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The configuration, TOML or YAML [default: holdpoint/holdpoint.toml in your configuration folder]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// `demo`.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Make the files here: a folder that is empty, or does not exist yet [default: a new temporary one]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) dir: Option<PathBuf>,
    /// A real model instead of the script: PROVIDER/MODEL (key in OPENAI_API_KEY or ANTHROPIC_API_KEY), or MODEL@URL of
    /// an OpenAI-compatible server
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// What to ask the agent for
    #[arg(long, value_name = "TEXT")]
    pub(crate) query: Option<String>,
    /// The port of the demo's server; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    pub(crate) port: u16,
}

/// `chat`.
#[derive(Debug, Args)]
pub(crate) struct Chat {
    #[command(flatten)]
    pub(crate) at: At,
    /// The agent [default: the server's first one]
    #[arg(long)]
    pub(crate) agent: Option<String>,
    /// One of the models the agent allows
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// The conversation to go on with
    #[arg(long, value_name = "ID")]
    pub(crate) conversation: Option<String>,
    /// Take up a run that exists
    #[arg(long, value_name = "ID", conflicts_with_all = ["agent", "model", "conversation"])]
    pub(crate) run: Option<RunId>,
}

/// `inbox`.
#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) at: At,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// A request.
#[derive(Debug, Args)]
pub(crate) struct One {
    /// The request
    #[arg(value_name = "REQUEST")]
    pub(crate) id: RequestId,
    #[command(flatten)]
    pub(crate) at: At,
}

/// `show`.
#[derive(Debug, Args)]
pub(crate) struct Show {
    #[command(flatten)]
    pub(crate) one: One,
    /// The whole request as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `approve`.
#[derive(Debug, Args)]
pub(crate) struct Approve {
    /// The request
    #[arg(value_name = "REQUEST")]
    pub(crate) id: RequestId,
    #[command(flatten)]
    pub(crate) at: At,
    /// The digest of what you were shown; needed where there is no terminal to show it on
    #[arg(long)]
    pub(crate) digest: Option<String>,
    /// Run it with these arguments instead: a file, or `-` for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) with: Option<PathBuf>,
    /// Kept with the decision
    #[arg(long)]
    pub(crate) reason: Option<String>,
}

/// `decline`.
#[derive(Debug, Args)]
pub(crate) struct Decline {
    /// The request
    #[arg(value_name = "REQUEST")]
    pub(crate) id: RequestId,
    #[command(flatten)]
    pub(crate) at: At,
    /// What the agent is told
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// End the run as well
    #[arg(long)]
    pub(crate) stop: bool,
}

/// `feedback`.
#[derive(Debug, Args)]
pub(crate) struct Feedback {
    /// The request
    #[arg(value_name = "REQUEST")]
    pub(crate) id: RequestId,
    #[command(flatten)]
    pub(crate) at: At,
    /// What the agent is told to do instead
    #[arg(long)]
    pub(crate) text: String,
    /// End the run as well
    #[arg(long)]
    pub(crate) stop: bool,
}

/// `ran`.
#[derive(Debug, Args)]
pub(crate) struct Ran {
    /// The request
    #[arg(value_name = "REQUEST")]
    pub(crate) id: RequestId,
    #[command(flatten)]
    pub(crate) at: At,
    /// What came of it: JSON, or else a text
    #[arg(long)]
    pub(crate) result: String,
}

/// `runs`.
#[derive(Debug, Args)]
pub(crate) struct Runs {
    #[command(flatten)]
    pub(crate) list: List,
    /// Only those that stand so (running, suspended, cancelling, finished, failed, quarantined) or that ended so
    /// (success, stopped, limit_exceeded, cancelled, superseded)
    #[arg(long)]
    pub(crate) status: Option<String>,
}

/// `cancel`.
#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// The run
    #[arg(value_name = "RUN")]
    pub(crate) id: RunId,
    #[command(flatten)]
    pub(crate) at: At,
}

/// `audit`.
#[derive(Debug, Args)]
pub(crate) struct Audit {
    #[command(flatten)]
    pub(crate) at: At,
    /// The run; may be left out with --verify
    #[arg(value_name = "RUN")]
    pub(crate) run: Option<RunId>,
    /// Check that nothing in the record was changed or taken out, of this run or of all
    #[arg(long)]
    pub(crate) verify: bool,
}
