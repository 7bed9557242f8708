//! One run of each kind. rig keeps nothing across a restart by itself: for W3 and W4 the first half drives its
//! serialisable `AgentRun` by hand and stores it, the second half loads it, answers Write as skipped and resumes.
//! No decision is stored and nothing is claimed; that is what stands beside us, not the same guarantee.

use std::sync::{Mutex, MutexGuard};

use holdpoint_bench_harness::work;
use rig_agent::agent::{Agent, AgentBuilder, AgentHook, DispatchAction, DispatchEvent, HookContext};
use rig_agent::completion::{CompletionRequest, Message};
use rig_agent::run::{AgentRun, AgentRunStep, ModelTurn, PendingToolCall, prepare::prepare_request};
use rig_agent::tool::ToolContext;
use rig_core::driver::{DynModel, Model};
use rig_core::operation::Completion;
use rig_core::test_utils::MockScript;
use rig_core::tool::ToolResult;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::work::{Bash, Read, Script, Write};

/// More than the two turns that are needed.
const TURNS: usize = 10;

type Asked = (String, oneshot::Sender<Option<String>>);

/// A hook that waits for a decision before a gated call.
struct Gate(mpsc::UnboundedSender<Asked>);

impl AgentHook for Gate {
    async fn on_dispatch(&self, _: &HookContext, event: DispatchEvent<'_>) -> DispatchAction {
        let Some(name) = event.tool_name().filter(|name| *name != "Read") else {
            return DispatchAction::proceed();
        };
        let (tx, rx) = oneshot::channel();
        let _ = self.0.send((name.to_string(), tx));
        match rx.await {
            Ok(None) => DispatchAction::proceed(),
            Ok(Some(why)) => DispatchAction::skip(why),
            Err(_) => DispatchAction::skip("no decision"),
        }
    }
}

/// An agent, and where its suspended runs are kept.
pub struct Peer {
    agent: Agent,
    model: DynModel<Completion>,
    asked: tokio::sync::Mutex<mpsc::UnboundedReceiver<Asked>>,
    db: Option<Mutex<Connection>>,
}

impl Peer {
    /// A peer with this script; gated by the hook where the runs stay in memory.
    pub fn new(calls: &'static [work::Call], hook: bool, db: Option<Connection>) -> Self {
        let (tx, rx) = mpsc::unbounded_channel();
        let model = || Model::new(MockScript::new("scripted"), Script(calls));
        let builder = AgentBuilder::new(model()).preamble(work::SYSTEM).tool(Read).tool(Write).tool(Bash);
        let agent = if hook { builder.add_hook(Gate(tx)).build() } else { builder.build() };
        Self { agent, model: model().into(), asked: tokio::sync::Mutex::new(rx), db: db.map(Mutex::new) }
    }

    /// W1.
    pub async fn free(&self) -> String {
        self.agent.prompt(work::PROMPT).max_turns(TURNS).await.expect("a run").output().to_string()
    }

    /// W2: both gated calls are pending at once, then decided.
    pub async fn gated(&self) -> String {
        let run = self.agent.prompt(work::PROMPT).max_turns(TURNS).tool_concurrency(3);
        let run = async { run.await.expect("a run").output().to_string() };
        let person = async {
            let mut asked = self.asked.lock().await;
            let both = [asked.recv().await.expect("a request"), asked.recv().await.expect("a request")];
            for (name, answer) in both {
                let _ = answer.send((name == "Write").then(|| work::DECLINED.to_string()));
            }
        };
        futures::join!(run, person).0
    }

    /// The first half of W3: to where Write and Bash are open, and stored.
    pub async fn suspend(&self, id: &str) {
        let spec = self.agent.run_spec();
        let tools = self.agent.tool_server_handle().toolset();
        let mut run = AgentRun::from_spec(&spec, work::PROMPT, None).max_turns(TURNS);
        loop {
            match run.next_step().expect("a step") {
                AgentRunStep::CallModel { prompt, history, turn } => {
                    let definitions = tools.tool_definitions();
                    let prepared =
                        prepare_request(&spec, &Default::default(), &history, definitions, None, None);
                    let prepared = prepared.expect("a request");
                    let policy = prepared.policy.clone();
                    run.advertise_tools(turn, prepared.tools.clone());
                    let request = prepared.apply(CompletionRequest::new(Message::clone(&prompt)));
                    let reply = self.model.call(request).await.expect("a reply");
                    run.model_response(ModelTurn::from_policy(&reply, policy)).expect("a turn");
                }
                AgentRunStep::CallTools { calls } => {
                    for call in calls {
                        if let PendingToolCall::Execute(call) = call
                            && call.name().as_str() == "Read"
                        {
                            let mut context = ToolContext::default();
                            let output =
                                tools.execute("Read", call.arguments().to_string(), &mut context).await;
                            run.answer(call.answer(output)).expect("an answer");
                        }
                    }
                    break;
                }
                AgentRunStep::Done(_) => panic!("it did not stop at the gate"),
            }
        }
        let state = serde_json::to_string(&run).expect("a state");
        let db = self.db();
        let mut insert =
            db.prepare_cached("INSERT INTO runs VALUES(?, 'pending', ?, NULL)").expect("a statement");
        insert.execute((id, state)).expect("an insert");
    }

    /// The second half of W3, by id alone.
    pub async fn resume(&self, id: &str) -> String {
        let state: String = {
            let db = self.db();
            let mut read = db
                .prepare_cached("SELECT state FROM runs WHERE id = ? AND status = 'pending'")
                .expect("a statement");
            read.query_row([id], |row| row.get(0)).expect("a run")
        };
        let mut run: AgentRun = serde_json::from_str(&state).expect("a state");
        if let AgentRunStep::CallTools { calls } = run.next_step().expect("a step") {
            for call in calls {
                if let PendingToolCall::Execute(call) = call
                    && call.name().as_str() == "Write"
                {
                    run.answer(call.answer(ToolResult::skipped(work::DECLINED))).expect("an answer");
                }
            }
        }
        let output = self.agent.resume(run).await.expect("a run").output().to_string();
        let db = self.db();
        let mut update = db
            .prepare_cached("UPDATE runs SET status = 'done', output = ? WHERE id = ?")
            .expect("a statement");
        update.execute((&output, id)).expect("an update");
        output
    }

    /// All pending calls with name and arguments: their number.
    pub fn list(&self) -> usize {
        let db = self.db();
        let mut read =
            db.prepare("SELECT id, state FROM runs WHERE status = 'pending'").expect("a statement");
        let mut rows = read.query([]).expect("rows");
        let mut pending = 0;
        while let Some(row) = rows.next().expect("a row") {
            let id: String = row.get(0).expect("an id");
            let state: String = row.get(1).expect("a state");
            let mut run: AgentRun = serde_json::from_str(&state).expect("a state");
            if let AgentRunStep::CallTools { calls } = run.next_step().expect("a step") {
                for call in calls {
                    if let PendingToolCall::Execute(call) = call {
                        std::hint::black_box((&id, call.name(), call.arguments()));
                        pending += 1;
                    }
                }
            }
        }
        pending
    }

    /// Moves the write-ahead log into the file and closes it.
    pub fn close(mut self) {
        if let Some(db) = self.db.take() {
            let db = db.into_inner().expect("no run panicked");
            db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("a checkpoint");
        }
    }

    fn db(&self) -> MutexGuard<'_, Connection> {
        self.db.as_ref().expect("a durable workload").lock().expect("no run panicked")
    }
}

/// The store: a table, WAL, `synchronous=FULL`.
pub fn open(path: &str) -> rusqlite::Result<Connection> {
    let db = Connection::open(path)?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.execute_batch(
        "CREATE TABLE IF NOT EXISTS runs(id TEXT PRIMARY KEY, status TEXT, state TEXT, output TEXT);
         CREATE INDEX IF NOT EXISTS pend ON runs(status) WHERE status = 'pending'",
    )?;
    Ok(db)
}
