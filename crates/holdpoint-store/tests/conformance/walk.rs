//! A run that is walked through its life by hand, with the real run machine: what a store is given is what a runtime
//! would give it.

use std::borrow::Cow;
use std::sync::Arc;

use holdpoint_core::arguments::Arguments;
use holdpoint_core::decision::Fact;
use holdpoint_core::digest::{definition_digest, tool_set_digest};
use holdpoint_core::message::{
    AssistantItem, AssistantMessage, Message, ProposedCall, ResultContent, UserMessage,
};
use holdpoint_core::policy::{Ruling, Verdict};
use holdpoint_core::run::{
    Birth, Changes, Check, Cx, Input, OpenRound, Replied, ReplyEnd, Ruled, Run, Settings, ToolEnd,
};
use holdpoint_core::terms::{ApprovalTerms, TermsRule};
use holdpoint_core::tool::{EffectClass, ToolDefinition};
use holdpoint_protocol::{
    AgentName, By, ConversationId, DecisionWord, Event, EventBody, Reason, RequestId, RunId, Then, Via,
};
use holdpoint_store::{
    Committed, Context, Decide, IdempotencyKey, Loaded, Next, Result, StartRun, Started, Step, Store,
    ToolSet, Writes,
};

use crate::bed::Bed;

/// A run and its owner's view of it.
pub struct Walk {
    pub store: Arc<dyn Store>,
    pub cx: Context,
    pub run: Run,
    pub open: OpenRound,
    pub settings: Settings,
    pub epoch: u64,
    pub next_seq: u64,
}

pub fn tools() -> ToolSet {
    let schema = |fields: &[&str]| {
        let properties: serde_json::Map<_, _> =
            fields.iter().map(|name| ((*name).to_owned(), serde_json::json!({"type": "string"}))).collect();
        serde_json::json!({"type": "object", "properties": properties, "required": fields})
    };
    let mut read = ToolDefinition::new("Read", "Reads a file", schema(&["path"]));
    read.effect = EffectClass::ReadOnly;
    let write = ToolDefinition::new("Write", "Writes a file", schema(&["path", "content"]));
    let bash = ToolDefinition::new("Bash", "Runs a command", schema(&["command"]));
    let tools = vec![read, write, bash];
    ToolSet { digest: tool_set_digest(&tools), tools: tools.into() }
}

/// Settings under which requests wait so.
pub fn waiting(rule: TermsRule) -> Settings {
    let approval = ApprovalTerms { agent: rule, ..ApprovalTerms::default() };
    Settings { approval, ..Settings::default() }
}

/// Settings under which requests expire after this many milliseconds.
pub fn expiring(timeout_ms: u64) -> Settings {
    waiting(TermsRule { timeout_ms: Some(timeout_ms), ..TermsRule::default() })
}

/// One read that needs nobody, two calls that ask.
const CALLS: [(&str, &str); 3] = [
    ("Read", r#"{"path":"notes.txt"}"#),
    ("Write", r#"{"path":"out.txt","content":"hello"}"#),
    ("Bash", r#"{"command":"make build"}"#),
];

pub fn conversation(name: &str) -> ConversationId {
    ConversationId::new(name).unwrap()
}

pub fn birth(cx: &Context, name: &str) -> Birth {
    Birth {
        id: RunId(uuid::Uuid::now_v7()),
        tenant: cx.tenant.clone(),
        actor: cx.actor.clone(),
        agent: AgentName::new("main").unwrap(),
        conversation: conversation(name),
        model: None,
        bypass: None,
    }
}

impl Walk {
    /// A run that has not been stored.
    pub fn unborn(bed: &Bed, cx: &Context, name: &str) -> Self {
        Self {
            store: Arc::clone(&bed.store),
            cx: cx.clone(),
            run: Run::new(birth(cx, name)),
            open: OpenRound::default(),
            settings: Settings::default(),
            epoch: 1,
            next_seq: 1,
        }
    }

    /// Steps without storing anything.
    pub async fn step(&mut self, inputs: Vec<Input>) -> Changes {
        let now = self.store.now().await.unwrap();
        let mut changes = Changes::default();
        let mut fresh = || RequestId(uuid::Uuid::new_v4());
        for input in inputs {
            let mut cx = Cx { now, settings: &self.settings, fresh: &mut fresh };
            self.run.step(&mut self.open, input, &mut cx, &mut changes).unwrap();
        }
        changes
    }

    pub fn writes(&self, changes: Changes) -> Writes {
        let mut committed_round = None;
        let events = (self.next_seq..)
            .zip(changes.events)
            .map(|(seq, body)| {
                if let EventBody::RoundCommitted(round) = &body {
                    committed_round = Some(round.round);
                }
                Arc::new(Event { seq: Some(seq), run_id: self.run.id(), child: None, body })
            })
            .collect();
        let messages =
            changes.messages.into_iter().map(|(round, slot, message)| (round, slot, Arc::new(message)));
        Writes {
            events,
            messages: messages.collect(),
            opened: changes.opened,
            closed: changes.closed,
            executions: changes.executions,
            audit: changes.audit,
            committed_round,
            tools: None,
        }
    }

    pub async fn first(&mut self) -> StartRun {
        let start = Input::Start {
            message: UserMessage::text("Read notes.txt, then write out.txt and run the build."),
            tools: tools().tools.iter().map(|tool| tool.name.clone()).collect(),
        };
        let changes = self.step(vec![start]).await;
        let writes = Writes { tools: Some(tools()), ..self.writes(changes) };
        StartRun { run: self.run.clone(), writes, key: None, next: Next::Keep }
    }

    pub async fn try_start(&mut self, key: Option<IdempotencyKey>) -> Result<Started> {
        let start = StartRun { key, ..self.first().await };
        let events = start.writes.events.len() as u64;
        let started = self.store.start(&self.cx, start).await?;
        if let Started::Created { .. } = started {
            self.next_seq += events;
        }
        Ok(started)
    }

    /// A run that asks its model.
    pub async fn started(bed: &Bed, cx: &Context, name: &str) -> Self {
        let mut walk = Self::unborn(bed, cx, name);
        let started = walk.try_start(None).await.unwrap();
        assert!(matches!(started, Started::Created { .. }), "{started:?}");
        walk
    }

    pub fn made(&self, changes: Changes, next: Next) -> Step<'static> {
        let writes = self.writes(changes);
        let run = Cow::Owned(self.run.clone());
        let (epoch, expected_seq) = (self.epoch, self.next_seq);
        Step { run, epoch, expected_seq, writes, next, progress: true }
    }

    /// Stores a step; it must go through.
    pub async fn stored(&mut self, changes: Changes, next: Next) {
        let step = self.made(changes, next);
        match self.store.commit(&self.cx, &step).await.unwrap() {
            Committed::Done { next_seq } => self.next_seq = next_seq,
            other => panic!("{other:?}"),
        }
    }

    /// The reply with three calls, and what policy says of each.
    pub async fn proposed(&mut self) -> Changes {
        let calls = CALLS.iter().zip(1..).map(|((name, arguments), n)| {
            let call =
                ProposedCall { id: format!("c{n}"), name: (*name).into(), arguments: (*arguments).into() };
            AssistantItem::Call(call)
        });
        let tools = tools().tools;
        let ruled = CALLS.iter().zip(tools.iter()).map(|((name, arguments), tool)| Ruled::Verdict {
            arguments: Arguments::parse(arguments, 1 << 18).unwrap(),
            tool: Arc::new(tool.clone()),
            definition: definition_digest(tool),
            ruling: ruling(name),
        });
        let reply = reply(AssistantMessage { items: calls.collect(), ..AssistantMessage::default() });
        let ruled = Input::Ruled(ruled.collect());
        let round = self.run.round();
        self.step(vec![Input::Replied { round, reply }, ruled]).await
    }

    /// A run whose two requests are open, and nobody owns it.
    pub async fn suspended(bed: &Bed, cx: &Context, name: &str) -> Self {
        Self::suspended_with(bed, cx, name, Settings::default()).await
    }

    pub async fn suspended_with(bed: &Bed, cx: &Context, name: &str, settings: Settings) -> Self {
        let mut walk = Self::started(bed, cx, name).await;
        walk.settings = settings;
        walk.until_suspended().await
    }

    /// The same of one that was started.
    pub async fn until_suspended(mut self) -> Self {
        let changes = self.proposed().await;
        self.stored(changes, Next::Keep).await;
        self.executed(0, "contents of notes.txt", Next::Suspend).await;
        self
    }

    /// A call starts and, in a second step, ends.
    pub async fn executed(&mut self, index: u32, result: &str, next: Next) {
        let changes = self.checked(index).await;
        self.stored(changes, Next::Keep).await;
        let changes = self.finished(index, result).await;
        self.stored(changes, next).await;
    }

    pub async fn checked(&mut self, index: u32) -> Changes {
        let input = self.check_of(index);
        self.step(vec![input]).await
    }

    pub async fn finished(&mut self, index: u32, result: &str) -> Changes {
        self.step(vec![Self::finish_of(index, result)]).await
    }

    pub fn check_of(&self, index: u32) -> Input {
        let tool = Arc::new(tools().tools[index as usize].clone());
        let (definition, ruling) = (definition_digest(&tool), ruling(CALLS[index as usize].0));
        Input::Checked { index, check: Check::Now { tool, definition, ruling } }
    }

    pub fn finish_of(index: u32, result: &str) -> Input {
        let end = ToolEnd::Output(ResultContent::Text(result.into()));
        Input::Finished { index, attempt: 1, end }
    }

    pub fn copy(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            cx: self.cx.clone(),
            run: self.run.clone(),
            open: self.open.clone(),
            settings: self.settings.clone(),
            epoch: self.epoch,
            next_seq: self.next_seq,
        }
    }

    /// The model says `done`, and the run ends.
    pub async fn answered(&mut self) {
        let message = AssistantMessage {
            items: vec![AssistantItem::Text("done".into())],
            ..AssistantMessage::default()
        };
        let (round, reply) = (self.run.round(), reply(message));
        let changes = self.step(vec![Input::Replied { round, reply }]).await;
        self.stored(changes, Next::End).await;
    }

    pub fn id(&self) -> RunId {
        self.run.id()
    }

    /// The open requests, as the run machine knows them.
    pub fn requests(&self) -> Vec<RequestId> {
        self.run.pending().into_iter().map(|pending| pending.request_id).collect()
    }

    /// The run as somebody else finds it, with the facts since its last step applied.
    pub async fn resumed(store: &Arc<dyn Store>, cx: &Context, run: RunId) -> (Self, Changes) {
        let loaded = store.load(cx, run).await.unwrap().expect("the run is stored");
        let facts = loaded.facts.clone();
        let mut walk = Self::of(store, cx, loaded);
        let changes =
            if facts.is_empty() { Changes::default() } else { walk.step(vec![Input::Facts(facts)]).await };
        (walk, changes)
    }

    pub fn of(store: &Arc<dyn Store>, cx: &Context, loaded: Loaded) -> Self {
        let reply = loaded.open.iter().find_map(|(_, message)| match &**message {
            Message::Assistant(reply) => Some(reply),
            Message::User(_) | Message::Tool(_) | Message::Note(_) => None,
        });
        let mut open = reply.map(OpenRound::of).unwrap_or_default();
        for (index, slot) in (0u32..).zip(&mut open.slots) {
            let text = loaded.run.edited(index).map_or(slot.proposed.arguments.as_str(), |text| text);
            slot.arguments = Arguments::parse(text, 1 << 18).ok();
            slot.tool =
                loaded.tools.iter().find(|tool| tool.name == slot.proposed.name).cloned().map(Arc::new);
            slot.result = loaded.open.iter().find_map(|(at, message)| match &**message {
                Message::Tool(result) if *at == index + 1 => Some(result.clone()),
                Message::Tool(_) | Message::Assistant(_) | Message::User(_) | Message::Note(_) => None,
            });
        }
        Self {
            store: Arc::clone(store),
            cx: cx.clone(),
            run: loaded.run,
            open,
            settings: Settings::default(),
            epoch: loaded.epoch,
            next_seq: loaded.next_seq,
        }
    }

    /// From the suspension to the end: the write is declined, the build approved.
    pub async fn decided_to_the_end(self) -> Self {
        let requests = self.requests();
        decide(&self.store, &self.cx, requests[0], DecisionWord::Decline).await;
        decide(&self.store, &self.cx, requests[1], DecisionWord::Approve).await;
        let (mut walk, changes) = Self::resumed(&self.store, &self.cx, self.id()).await;
        walk.stored(changes, Next::Keep).await;
        walk.executed(2, "build ok", Next::Keep).await;
        walk.answered().await;
        walk
    }
}

fn ruling(tool: &str) -> Ruling {
    let verdict = if tool == "Read" { Verdict::Allow } else { Verdict::Ask };
    Ruling { verdict, reason: Reason { policy: "default".into(), rule: "not listed: ask".into() } }
}

fn reply(message: AssistantMessage) -> Replied {
    Replied {
        message,
        end: ReplyEnd::Complete,
        input_tokens: 10,
        output_tokens: 5,
        cost_micro_dollars: None,
        other_choices: (0, false),
    }
}

pub fn by(actor: &str) -> By {
    By { actor: Some(holdpoint_protocol::ActorId::new(actor).unwrap()), via: Via::Human }
}

pub fn decision(request: RequestId, word: DecisionWord, actor: &str) -> Decide {
    Decide {
        request,
        word,
        by: by(actor),
        digest: None,
        reason: (word == DecisionWord::Decline).then(|| "not allowed by policy".into()),
        arguments: None,
        result: None,
        then: Then::Continue,
        redefined: false,
        step: None,
    }
}

pub async fn decide(store: &Arc<dyn Store>, cx: &Context, request: RequestId, word: DecisionWord) {
    let reply = store.decide(cx, decision(request, word, cx.actor.as_str())).await.unwrap();
    assert!(matches!(reply, holdpoint_store::DecideReply::Taken { .. }), "{reply:?}");
}

pub async fn facts(store: &Arc<dyn Store>, cx: &Context, run: RunId) -> Vec<Fact> {
    store.load(cx, run).await.unwrap().unwrap().facts
}
