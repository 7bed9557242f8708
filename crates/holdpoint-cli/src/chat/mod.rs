//! A conversation in the terminal: what the agent says and does, and the person's decisions in between.

mod prompt;
mod view;

use std::time::Duration;

use holdpoint_protocol::{ChatRequest, EventBody, RequestId};
use tokio::time::{Instant, sleep_until};

use crate::access;
use crate::args;
use crate::client::{Client, Events, Follow, Item};
use crate::fail::{Fail, Result};
use crate::request::Asked;
use crate::term::{self, Keyboard, Style};
use crate::text::line;

use prompt::Answered;
use view::View;

/// How long nothing must happen before a request is put, while other calls still run.
const QUIET: Duration = Duration::from_millis(400);

/// `chat`.
pub(crate) async fn chat(args: args::Chat) -> Result<()> {
    if !term::is_attended() {
        return Err(Fail::usage("there is no terminal to talk on")
            .hint("a program talks to an agent with `POST /chat/stream`; README.md shows it with curl"));
    }
    let client = access::client(&args.at.server)?;
    let named = |what: &str, error: holdpoint_protocol::InvalidId| Fail::usage(format!("--{what}: {error}"));
    let mut talk = Talk::new(client);
    talk.agent = args.agent.map(|text| text.parse().map_err(|error| named("agent", error))).transpose()?;
    talk.model = args.model;
    talk.conversation = args
        .conversation
        .map(|text| text.parse().map_err(|error| named("conversation", error)))
        .transpose()?;
    if let Some(run) = args.run {
        talk.follow(Follow::Run(run)).await?;
    }
    talk.run().await
}

/// A conversation.
pub(crate) struct Talk {
    client: Client,
    keyboard: Keyboard,
    view: View,
    suggestion: Option<String>,
    agent: Option<holdpoint_protocol::AgentName>,
    model: Option<String>,
    conversation: Option<holdpoint_protocol::ConversationId>,
    /// What waits for this person, in the order it was asked.
    open: Vec<Asked>,
    /// What this person has put off.
    later: Vec<RequestId>,
}

impl Talk {
    /// A new conversation with the server's first agent.
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            keyboard: Keyboard::new(),
            view: View::new(),
            suggestion: None,
            agent: None,
            model: None,
            conversation: None,
            open: Vec::new(),
            later: Vec::new(),
        }
    }

    /// With something to say, for somebody who does not know what.
    pub(crate) fn suggest(mut self, text: &str) -> Self {
        self.suggestion = Some(text.to_owned());
        self
    }

    /// Talks until the person has had enough.
    pub(crate) async fn run(&mut self) -> Result<()> {
        loop {
            let suggestion = self.suggestion.take();
            term::say("");
            match &suggestion {
                Some(text) => term::ask(&format!("you (Enter to say: {}) > ", line(text))),
                None => term::ask("you (Enter to leave) > "),
            }
            let Some(typed) = self.keyboard.line().await else { return Ok(()) };
            let query = match (typed.trim(), suggestion) {
                ("", Some(text)) => text,
                ("" | "/quit" | "/exit", None) => return Ok(()),
                (text, _) => text.to_owned(),
            };
            let request = ChatRequest {
                query,
                agent: self.agent.clone(),
                model: self.model.clone(),
                conversation_id: self.conversation.clone(),
                bypass_approval: None,
                approval_timeout_ms: None,
            };
            let body = serde_json::to_string(&request)
                .map_err(|error| Fail::new(format!("the message cannot be written: {error}")))?;
            self.follow(Follow::Start(body)).await?;
        }
    }

    /// Follows one run to its end, and puts its requests to the person.
    pub(crate) async fn follow(&mut self, what: Follow) -> Result<()> {
        let mut events = Events::follow(&self.client, what);
        let mut ask_at: Option<Instant> = None;
        loop {
            let item = tokio::select! {
                item = events.next() => item,
                () = due(ask_at) => {
                    ask_at = None;
                    self.put(&mut events).await?;
                    continue;
                }
            };
            match item {
                None => return Ok(()),
                Some(item) => self.take(item)?,
            }
            ask_at = self.next_open().map(|_| Instant::now() + QUIET);
        }
    }

    /// The first request that is open and not put off.
    fn next_open(&self) -> Option<&Asked> {
        self.open.iter().find(|asked| !self.later.contains(&asked.request_id))
    }

    /// Shows what came.
    fn take(&mut self, item: Item) -> Result<()> {
        match item {
            Item::Event(json, Some(event)) => {
                match &event.body {
                    EventBody::RunStarted(started) if event.child.is_none() => {
                        self.conversation = Some(started.conversation_id.clone());
                    }
                    EventBody::ApprovalRequest(_)
                    | EventBody::InDoubtRequest(_)
                    | EventBody::QuarantineRequest(_) => {
                        let asked = Asked::read(&json)?;
                        self.open.retain(|open| open.request_id != asked.request_id);
                        self.open.push(asked);
                    }
                    EventBody::Decision(decision) => {
                        self.open.retain(|open| open.request_id != decision.request_id);
                    }
                    EventBody::Finish(_) | EventBody::Error(_) if event.child.is_none() => self.open.clear(),
                    _ => {}
                }
                self.view.event(&event);
            }
            // An event of a newer server.
            Item::Event(_, None) => {}
            Item::Lost(why) => {
                self.view.note(&format!("the stream broke off and is taken up again: {}", line(&why)))
            }
            Item::Failed(fail) => return Err(fail),
        }
        Ok(())
    }

    /// Puts the first open request, and takes what is typed; or sees that it is closed meanwhile.
    async fn put(&mut self, events: &mut Events) -> Result<()> {
        let Some(asked) = self.next_open().cloned() else { return Ok(()) };
        self.view.end_line();
        term::say("");
        term::say(&asked.shown(Style::of(&std::io::stderr()), term::width_of(&std::io::stderr())));
        self.keyboard.forget();
        loop {
            term::ask(&prompt::question(&asked, self.waiting()));
            let typed = loop {
                tokio::select! {
                    typed = self.keyboard.line() => break typed,
                    item = events.next() => {
                        let Some(item) = item else { return Ok(()) };
                        term::say("");
                        self.take(item)?;
                        if !self.open.iter().any(|open| open.request_id == asked.request_id) {
                            self.view.note("this request is closed; what you type does not count for it any more");
                            return self.settle().await;
                        }
                        term::ask(&prompt::question(&asked, self.waiting()));
                    }
                }
            };
            let Some(typed) = typed else {
                return Err(Fail::new("the input ended; what is pending stays pending"));
            };
            match prompt::answer(&self.client, &mut self.keyboard, &asked, typed.trim()).await? {
                Answered::Closed => {
                    self.open.retain(|open| open.request_id != asked.request_id);
                    return Ok(());
                }
                Answered::Later => {
                    self.later.push(asked.request_id);
                    if self.waiting() == 0 {
                        term::say("waiting for somebody else to decide; Ctrl-C leaves");
                    }
                    return Ok(());
                }
                Answered::Again => {}
            }
        }
    }

    fn waiting(&self) -> usize {
        self.open.iter().filter(|open| !self.later.contains(&open.request_id)).count()
    }

    /// Between a request that was closed by others and the next one: what is being typed was meant for the former.
    async fn settle(&mut self) -> Result<()> {
        tokio::time::sleep(QUIET).await;
        self.keyboard.forget();
        Ok(())
    }
}

/// Comes at this time; never where there is none.
async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
