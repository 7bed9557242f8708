//! The routes: one list, from which the router and the OpenAPI document are both made.

use http::Method;

/// A route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Endpoint {
    Chat,
    ChatStream,
    ChatApproval,
    Runs,
    Run,
    RunEvents,
    RunCancel,
    ToolInvoke,
    Interactions,
    InteractionEvents,
    Interaction,
    InteractionDecision,
    Agents,
    PolicyExplain,
    Audit,
    AuditVerify,
    Health,
    Ready,
    Metrics,
    OpenApi,
}

impl Endpoint {
    pub(crate) const ALL: [Self; 20] = [
        Self::Chat,
        Self::ChatStream,
        Self::ChatApproval,
        Self::Runs,
        Self::Run,
        Self::RunEvents,
        Self::RunCancel,
        Self::ToolInvoke,
        Self::Interactions,
        Self::InteractionEvents,
        Self::Interaction,
        Self::InteractionDecision,
        Self::Agents,
        Self::PolicyExplain,
        Self::Audit,
        Self::AuditVerify,
        Self::Health,
        Self::Ready,
        Self::Metrics,
        Self::OpenApi,
    ];

    /// The path, in the form that axum and OpenAPI share.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Chat => "/chat",
            Self::ChatStream => "/chat/stream",
            Self::ChatApproval => "/chat/approval",
            Self::Runs => "/v1/runs",
            Self::Run => "/v1/runs/{runId}",
            Self::RunEvents => "/v1/runs/{runId}/events",
            Self::RunCancel => "/v1/runs/{runId}/cancel",
            Self::ToolInvoke => "/v1/tools/{name}/invoke",
            Self::Interactions => "/v1/interactions",
            Self::InteractionEvents => "/v1/interactions/events",
            Self::Interaction => "/v1/interactions/{requestId}",
            Self::InteractionDecision => "/v1/interactions/{requestId}/decision",
            Self::Agents => "/v1/agents",
            Self::PolicyExplain => "/v1/policy/explain",
            Self::Audit => "/v1/audit",
            Self::AuditVerify => "/v1/audit/verify",
            Self::Health => "/healthz",
            Self::Ready => "/readyz",
            Self::Metrics => "/metrics",
            Self::OpenApi => "/openapi.json",
        }
    }

    pub(crate) fn method(self) -> Method {
        match self {
            Self::Chat
            | Self::ChatStream
            | Self::ChatApproval
            | Self::RunCancel
            | Self::ToolInvoke
            | Self::InteractionDecision
            | Self::PolicyExplain => Method::POST,
            Self::Runs
            | Self::Run
            | Self::RunEvents
            | Self::Interactions
            | Self::InteractionEvents
            | Self::Interaction
            | Self::Agents
            | Self::Audit
            | Self::AuditVerify
            | Self::Health
            | Self::Ready
            | Self::Metrics
            | Self::OpenApi => Method::GET,
        }
    }

    /// Whether a path can be asked without the operator's token: whether the process lives, and nothing else.
    pub(crate) fn is_open(path: &str) -> bool {
        [Self::Health, Self::Ready].iter().any(|endpoint| endpoint.path() == path)
    }

    /// Whether an answer takes as long as a run does.
    pub(crate) fn waits_for_a_run(self) -> bool {
        match self {
            Self::Chat | Self::ToolInvoke => true,
            Self::ChatStream
            | Self::ChatApproval
            | Self::Runs
            | Self::Run
            | Self::RunEvents
            | Self::RunCancel
            | Self::Interactions
            | Self::InteractionEvents
            | Self::Interaction
            | Self::InteractionDecision
            | Self::Agents
            | Self::PolicyExplain
            | Self::Audit
            | Self::AuditVerify
            | Self::Health
            | Self::Ready
            | Self::Metrics
            | Self::OpenApi => false,
        }
    }
}
