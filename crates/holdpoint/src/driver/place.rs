//! Where a driver takes a run up: a new one at its beginning, a stored one where it stands.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use holdpoint_core::arguments::Arguments;
use holdpoint_core::message::Message;
use holdpoint_core::run::{OpenRound, Run};
use holdpoint_models::Model;
use holdpoint_store::{Context, Loaded};
use tokio::sync::mpsc;

use super::commit::History;
use super::{Driver, Inbox};
use crate::RunInfo;
use crate::agent::Agent;
use crate::drivers::Seat;
use crate::histories::Known;
use crate::inner::{Inner, tool_context};

/// Where a driver takes a run up.
pub(crate) struct Place {
    epoch: u64,
    next_seq: u64,
    open: OpenRound,
    history: History,
}

impl Place {
    /// The beginning of a run.
    pub(crate) fn new() -> Self {
        Self { epoch: 1, next_seq: 1, open: OpenRound::default(), history: History::fresh() }
    }

    /// Where a stored run stands, with what is remembered of its conversation.
    pub(crate) fn of(loaded: &Loaded, remembered: Option<Known>, argument_bytes: usize) -> Self {
        Self {
            epoch: loaded.epoch,
            next_seq: loaded.next_seq,
            open: open_round(loaded, argument_bytes),
            history: History::of(loaded, remembered),
        }
    }
}

impl Driver {
    /// A driver of a run that is new.
    pub(crate) fn new(
        rt: Arc<Inner>,
        agent: Arc<Agent>,
        model: Arc<dyn Model>,
        cx: Context,
        run: Run,
    ) -> Self {
        let inbox = rt.drivers.register(&cx.tenant, run.id());
        Self::at(rt, agent, model, cx, run, Place::new(), inbox)
    }

    /// A driver at this place.
    pub(crate) fn at(
        rt: Arc<Inner>,
        agent: Arc<Agent>,
        model: Arc<dyn Model>,
        cx: Context,
        run: Run,
        place: Place,
        (seat, inbox): (Seat, mpsc::Receiver<Inbox>),
    ) -> Self {
        let info = RunInfo::of(&run);
        Self {
            context: tool_context(&agent, &info),
            tools: agent.tools.now(),
            new_tools: None,
            epoch: place.epoch,
            next_seq: place.next_seq,
            open: place.open,
            history: place.history,
            offered: None,
            running: HashMap::new(),
            asking: None,
            grace: None,
            look_at: rt.next_look_at_a_run(),
            term: rt.store.term(),
            unstored: Vec::new(),
            working_since: Instant::now(),
            stopping: false,
            ended: None,
            rt,
            agent,
            model,
            cx,
            info,
            run,
            inbox,
            seat,
        }
    }
}

/// Rebuilds the content of the round in progress from what is stored.
pub(crate) fn open_round(loaded: &Loaded, argument_bytes: usize) -> OpenRound {
    let reply = loaded.open.iter().find_map(|(slot, message)| match (slot, message.as_ref()) {
        (0, Message::Assistant(reply)) => Some(reply),
        (_, Message::Assistant(_) | Message::User(_) | Message::Tool(_) | Message::Note(_)) => None,
    });
    let mut open = reply.map(OpenRound::of).unwrap_or_default();
    for (index, slot) in (0u32..).zip(&mut open.slots) {
        let text = loaded.run.edited(index).map_or(slot.proposed.arguments.as_str(), |edited| edited);
        slot.arguments = Arguments::parse(text, argument_bytes).ok();
        slot.tool = loaded.tools.iter().find(|tool| tool.name == slot.proposed.name).cloned().map(Arc::new);
        slot.result = loaded.open.iter().find_map(|(at, message)| match message.as_ref() {
            Message::Tool(result) if *at == index + 1 => Some(result.clone()),
            Message::Tool(_) | Message::Assistant(_) | Message::User(_) | Message::Note(_) => None,
        });
    }
    open
}
