//! What each route takes and gives.

use crate::endpoint::Endpoint;

/// A route, as it is documented.
pub(super) struct Doc {
    pub(super) summary: &'static str,
    pub(super) parameters: &'static [Parameter],
    /// The schema of the body, where it takes one.
    pub(super) request: Option<&'static str>,
    pub(super) responses: &'static [(u16, &'static str, Body)],
    /// Refusals of its own.
    pub(super) problems: &'static [(u16, &'static str)],
}

pub(super) enum Body {
    Nothing,
    Json(&'static str),
    Events,
    Text,
}

pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) place: Place,
    pub(super) kind: &'static str,
    pub(super) description: &'static str,
}

pub(super) enum Place {
    Query,
    Header,
}

const fn query(name: &'static str, kind: &'static str, description: &'static str) -> Parameter {
    Parameter { name, place: Place::Query, kind, description }
}

const fn header(name: &'static str, kind: &'static str, description: &'static str) -> Parameter {
    Parameter { name, place: Place::Header, kind, description }
}

pub(super) const IDEMPOTENCY_KEY: Parameter = header(
    "Idempotency-Key",
    "string",
    "The same request again under the same key gets the same answer; another body under it is 422.",
);
const LAST_EVENT_ID: Parameter =
    header("Last-Event-ID", "integer", "The id of the last event the client has; what follows it is sent.");
const UNTIL: Parameter =
    query("until", "string", "`suspended`: the stream ends when the run needs a person.");
const CURSOR: Parameter = query("cursor", "string", "The `nextCursor` of the page before.");
const LIMIT: Parameter = query("limit", "integer", "Rows on a page, at most 200.");
const STATUS: Parameter = query("status", "string", "Only those that stand so: `pending` is the inbox.");
const KIND: Parameter = query("kind", "string", "Only those of this kind.");
const WHOSE: Parameter = query("run", "string", "Whose chain. Required.");
const AFTER: Parameter = query("after", "integer", "The records after this one.");
const RUN: Parameter = query("run", "string", "Only of this run.");
const GROUP: Parameter =
    query("group", "string", "Only those that this group is to decide, or has been told of.");

const STARTS: &[(u16, &str)] = &[
    (403, "Running without prompts is not granted to this caller, or the page that sends this may not."),
    (404, "There is no such conversation."),
    (409, "A run of the conversation is open; its pending requests are named."),
    (429, "Too many requests for a person are pending."),
    (502, "The run failed."),
];

/// What a route takes and gives.
pub(super) fn doc(endpoint: Endpoint) -> Doc {
    match endpoint {
        Endpoint::Chat => Doc {
            summary: "Starts a run and waits until it ends or needs a person.",
            parameters: &[],
            request: Some("ChatRequest"),
            responses: &[
                (200, "The run ended; `status` says how.", Body::Json("Finished")),
                (202, "The run needs a person; decide, then ask for the run.", Body::Json("Waiting")),
            ],
            problems: STARTS,
        },
        Endpoint::ChatStream => Doc {
            summary: "Starts a run and streams its events.",
            parameters: &[UNTIL, LAST_EVENT_ID],
            request: Some("ChatRequest"),
            responses: &[(200, "The events, as Server-Sent Events.", Body::Events)],
            problems: STARTS,
        },
        Endpoint::ChatApproval => Doc {
            summary: "Decides a request; a word that is not known declines.",
            parameters: &[],
            request: Some("LenientDecision"),
            responses: &[(200, "Whether it was accepted.", Body::Json("LenientAnswer"))],
            problems: &[],
        },
        Endpoint::InteractionDecision => Doc {
            summary: "Decides a request, bound to the digest of what was shown.",
            parameters: &[],
            request: Some("StrictDecision"),
            responses: &[(200, "The decision is durable, and the one that counts.", Body::Json("Accepted"))],
            problems: &[
                (403, "Not yours to decide, or the page that sends this may not."),
                (409, "Decided otherwise before, or not what you were shown."),
                (410, "The deadline has passed."),
            ],
        },
        Endpoint::Runs => Doc {
            summary: "Lists runs, newest first.",
            parameters: &[STATUS, CURSOR, LIMIT],
            request: None,
            responses: &[(200, "A page of runs.", Body::Json("RunPage"))],
            problems: &[],
        },
        Endpoint::Run => Doc {
            summary: "How a run stands.",
            parameters: &[],
            request: None,
            responses: &[(200, "The run.", Body::Json("Run"))],
            problems: &[],
        },
        Endpoint::RunEvents => Doc {
            summary: "Streams the events of a run, from its beginning or from where the client left off.",
            parameters: &[UNTIL, LAST_EVENT_ID],
            request: None,
            responses: &[
                (200, "The events, as Server-Sent Events.", Body::Events),
                (204, "The client has seen the run's last event.", Body::Nothing),
            ],
            problems: &[],
        },
        Endpoint::RunCancel => Doc {
            summary: "Cancels a run: what waits is closed, what runs is told to stop, every call is answered.",
            parameters: &[],
            request: Some("Empty"),
            responses: &[
                (200, "The run had ended.", Body::Json("CancelAnswer")),
                (202, "It is noted; the run ends.", Body::Json("CancelAnswer")),
            ],
            problems: &[],
        },
        Endpoint::ToolInvoke => Doc {
            summary: "Runs one call without a model, through the same gate.",
            parameters: &[],
            request: Some("InvokeRequest"),
            responses: &[
                (200, "The call ended; `status` and `results` say how.", Body::Json("Finished")),
                (202, "The call needs a person.", Body::Json("Waiting")),
            ],
            problems: STARTS,
        },
        Endpoint::Interactions => Doc {
            summary: "Lists requests for a person, oldest first.",
            parameters: &[STATUS, KIND, RUN, GROUP, CURSOR, LIMIT],
            request: None,
            responses: &[(200, "A page of requests.", Body::Json("InteractionPage"))],
            problems: &[],
        },
        Endpoint::InteractionEvents => Doc {
            summary: "Streams the inbox: a snapshot of what is pending, then every request as it opens, is reminded of, and closes.",
            parameters: &[],
            request: None,
            responses: &[(200, "The events, as Server-Sent Events.", Body::Events)],
            problems: &[],
        },
        Endpoint::Interaction => Doc {
            summary: "One request for a person.",
            parameters: &[],
            request: None,
            responses: &[(200, "The request, and what closed it.", Body::Json("Interaction"))],
            problems: &[],
        },
        Endpoint::Agents => Doc {
            summary: "The agents, their models and tools, and what policy says of each tool.",
            parameters: &[],
            request: None,
            responses: &[(200, "All agents.", Body::Json("Agents"))],
            problems: &[],
        },
        Endpoint::PolicyExplain => Doc {
            summary: "What policy would say of a tool, layer by layer. Nothing runs.",
            parameters: &[],
            request: Some("ExplainRequest"),
            responses: &[(200, "The verdict and the rules behind it.", Body::Json("Explained"))],
            problems: &[],
        },
        Endpoint::Audit => Doc {
            summary: "The audit chain of a run.",
            parameters: &[WHOSE, AFTER, LIMIT],
            request: None,
            responses: &[(200, "A page of records.", Body::Json("AuditPage"))],
            problems: &[(404, "There is no such run.")],
        },
        Endpoint::AuditVerify => Doc {
            summary: "Checks the audit chain of a run, or of all runs page by page.",
            parameters: &[RUN, CURSOR, LIMIT],
            request: None,
            responses: &[(200, "What was found, run by run.", Body::Json("ChainPage"))],
            problems: &[(404, "There is no such run.")],
        },
        Endpoint::Health => Doc {
            summary: "Whether the process answers.",
            parameters: &[],
            request: None,
            responses: &[(200, "It does.", Body::Json("Health"))],
            problems: &[],
        },
        Endpoint::Ready => Doc {
            summary: "Whether the server can work: its store answers, and it is not stopping.",
            parameters: &[],
            request: None,
            responses: &[(200, "It can.", Body::Json("Health"))],
            problems: &[],
        },
        Endpoint::Metrics => Doc {
            summary: "Figures for Prometheus.",
            parameters: &[],
            request: None,
            responses: &[(200, "The text format, 0.0.4.", Body::Text)],
            problems: &[],
        },
        Endpoint::OpenApi => Doc {
            summary: "This document.",
            parameters: &[],
            request: None,
            responses: &[(200, "OpenAPI 3.1.", Body::Json("Document"))],
            problems: &[],
        },
    }
}
