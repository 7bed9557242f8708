//! `holdpoint`: the server, the demo, and the commands a person decides with.
//!
//! Standard output is data and nothing else; everything said to a person goes to standard error.

mod access;
mod args;
mod chat;
mod client;
mod config;
mod database;
mod decide;
mod demo;
mod doctor;
mod edit;
mod fail;
mod host;
mod lists;
mod request;
mod serve;
mod term;
mod text;

use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use args::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    log_to_stderr(cli.log);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            term::say(&fail::Fail::new(format!("no threads could be started: {error}")).to_string());
            return ExitCode::FAILURE;
        }
    };
    let done = runtime.block_on(run(cli.command));
    // A thread may sit in a read of the keyboard for ever.
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fail) => {
            term::say(&fail.to_string());
            fail.exit_code()
        }
    }
}

async fn run(command: Command) -> fail::Result<()> {
    match command {
        Command::Serve(args) => serve::serve(args).await,
        Command::Doctor(args) => doctor::doctor(args).await,
        Command::Demo(args) => demo::demo(args).await,
        Command::Chat(args) => chat::chat(args).await,
        Command::Inbox(args) => lists::inbox(args).await,
        Command::Show(args) => decide::show_one(args).await,
        Command::Approve(args) => decide::approve(args).await,
        Command::Edit(args) => decide::edit(args).await,
        Command::Decline(args) => decide::decline(args).await,
        Command::Feedback(args) => decide::feedback(args).await,
        Command::Ran(args) => decide::ran(args).await,
        Command::Leave(args) => decide::leave(args).await,
        Command::Runs(args) => lists::runs(args).await,
        Command::Cancel(args) => lists::cancel(args).await,
        Command::Audit(args) => lists::audit(args).await,
    }
}

/// The log goes to standard error. Neither a token nor, above `debug`, an argument of a call is ever in it.
fn log_to_stderr(level: Option<tracing::Level>) {
    let named = std::env::var("HOLDPOINT_LOG").ok().filter(|value| !value.is_empty());
    let from_environment = named.as_ref().and_then(|value| value.parse().ok());
    if let (None, None, Some(value)) = (level, from_environment, &named) {
        term::say(&format!(
            "warning: HOLDPOINT_LOG is `{}`, which is none of error, warn, info, debug; it counts as warn",
            text::line(value)
        ));
    }
    let level = level.or(from_environment).unwrap_or(tracing::Level::WARN);
    let stderr = std::io::stderr();
    let colour = std::io::IsTerminal::is_terminal(&stderr)
        && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    // What the library of MCP says of its own workings names Rust types; what matters of it is a warning of ours.
    let rmcp = if level == tracing::Level::TRACE { LevelFilter::TRACE } else { LevelFilter::OFF };
    let filter = Targets::new().with_default(level).with_target("rmcp", rmcp);
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(colour)
        .with_target(false)
        .with_writer(std::io::stderr)
        .finish()
        .with(filter)
        .init();
}
