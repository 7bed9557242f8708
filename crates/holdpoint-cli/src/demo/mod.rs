//! `holdpoint demo`: a folder of messy files, an agent that wants to tidy it, and a person who decides.

mod files;
mod script;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use holdpoint::Agent;
use holdpoint_models::Model;
use holdpoint_models::routing::{ModelConfig, Models, ModelsConfig, ProcessSecrets};
use holdpoint_protocol::EventBody;
use holdpoint_tools::builtin::{self, Workdir};
use serde::Serialize;
use tokio::sync::oneshot;

use crate::args;
use crate::chat::Talk;
use crate::client::{Client, Events, Follow, Item};
use crate::config::{Protected, SHUTDOWN_GRACE_DEFAULT, shipped_policy};
use crate::database::Database;
use crate::fail::{Fail, Result};
use crate::host::{Host, StopSignal};
use crate::serve::ServerLine;
use crate::term::{self, Style};
use crate::text::line;

/// The name of the demo's agent.
const AGENT: &str = "tidy";

/// Runs the demo to its end.
pub(crate) async fn demo(args: args::Demo) -> Result<()> {
    let stop = StopSignal::new()?;
    let model = match &args.model {
        Some(name) => real_model(name)?,
        None => Arc::new(script::model()),
    };
    let folders = files::make(args.dir.as_deref())?;
    let database = folders.state.join("holdpoint.db");
    let host = Host {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, args.port)),
        agents: vec![agent(model, &folders.files, &database)?],
        bypass_approval: false,
        shutdown_grace: SHUTDOWN_GRACE_DEFAULT,
        retention: None,
    };
    let hosted = host.start(&Database::File(database)).await?;
    let url = hosted.server.url();
    let client = Client::new(&url, hosted.token.reveal())?;
    let (ended, end) = oneshot::channel::<()>();
    let stopped = async move {
        tokio::select! {
            _ = end => {}
            () = stop.told() => {}
        }
    };
    let server = tokio::spawn(hosted.server.serve(stopped));
    let attended = term::is_attended() && std::io::IsTerminal::is_terminal(&std::io::stdout());
    let query = args.query.as_deref().unwrap_or(script::QUERY);
    let talking = async {
        if attended {
            welcome(&url, hosted.token.reveal(), &folders.files, args.model.is_some());
            Talk::new(client).suggest(query).run().await
        } else {
            let dir = folders.files.to_string_lossy();
            ServerLine { url: &url, token: hosted.token.reveal(), dir: Some(&dir) }.print()?;
            print_stream(&client, query).await
        }
    };
    // The server ends by itself only when the process is told to stop.
    let mut server = server;
    let done = tokio::select! {
        done = talking => done,
        _ = &mut server => Ok(()),
    };
    if !server.is_finished() {
        let _ = ended.send(());
        let _ = server.await;
    }
    folders.forget_state();
    if attended {
        goodbye(&folders.files);
    }
    done
}

fn agent(model: Arc<dyn Model>, files: &Path, database: &Path) -> Result<Agent> {
    let workdir = Workdir::open(files)
        .map_err(|error| Fail::new(format!("`{}` cannot be opened: {error}", files.display())))?;
    let mut protected = Protected::default();
    protected.add("the database", database);
    protected.check(AGENT, &workdir)?;
    Agent::on(AGENT, model)
        .instructions(script::INSTRUCTIONS)
        .tools(builtin::all(&workdir))
        .policy(shipped_policy()?)
        .build()
        .map_err(|error| Fail::new(error.to_string()))
}

/// The model a person named, with the key their environment holds.
fn real_model(name: &str) -> Result<Arc<dyn Model>> {
    let fail = |error: holdpoint_models::routing::RoutingError| Fail::usage(line(&error.to_string()));
    let config = ModelsConfig::from([(name.to_owned(), ModelConfig::from_short(name).map_err(fail)?)]);
    let models = Models::from_config(&config, &ProcessSecrets { folder: ".".into() }).map_err(fail)?;
    let route = models.get(name).ok_or_else(|| Fail::usage(format!("there is no model `{}`", line(name))))?;
    Ok(Arc::clone(&route.model))
}

fn welcome(url: &str, token: &str, files: &Path, real: bool) {
    let style = Style::of(&std::io::stdout());
    term::out(&style.bold("Holdpoint demo"));
    term::out(&format!("  files   {}", files.display()));
    term::out(&format!("  server  {url}"));
    term::out(&format!("  token   {token}   (shown this once)"));
    term::out("");
    term::out("An agent may look at these files by itself. Whatever changes them stops and asks you.");
    if !real {
        term::out(
            "Its model is a script, so that this costs nothing: approve one call, edit one, decline one.",
        );
    }
    term::out("");
    for name in files::listing(files) {
        term::out(&format!("  {}", line(&name)));
    }
}

fn goodbye(files: &Path) {
    let style = Style::of(&std::io::stdout());
    term::out("");
    term::out(&style.bold("What the folder holds now"));
    for name in files::listing(files) {
        term::out(&format!("  {}", line(&name)));
    }
    term::out(&format!("\nThe files stay in {}", files.display()));
}

/// Starts the run and prints its events, one JSON object a line, until it ends.
async fn print_stream(client: &Client, query: &str) -> Result<()> {
    #[derive(Serialize)]
    struct Query<'a> {
        query: &'a str,
    }
    let body = serde_json::to_string(&Query { query })
        .map_err(|error| Fail::new(format!("the request cannot be written: {error}")))?;
    let mut events = Events::follow(client, Follow::Start(body));
    let mut end = None;
    while let Some(item) = events.next().await {
        match item {
            Item::Event(json, event) => {
                term::out(&json);
                end = event.map(|event| event.body);
            }
            Item::Lost(why) => term::say(&format!("the stream broke off and is taken up again: {why}")),
            Item::Failed(fail) => return Err(fail),
        }
    }
    match end {
        Some(EventBody::Error(error)) => Err(Fail::new(format!("the run failed: {}", line(&error.message)))),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
