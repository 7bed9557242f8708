//! The requests a command makes.

use holdpoint_protocol::{DecisionRequest, Interaction, Page, Problem, RequestId, RunId, RunView};
use hyper::header::HeaderName;
use hyper::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Answer, Client};
use crate::fail::{Fail, Result};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// How a decision was answered.
#[derive(Debug)]
pub(crate) enum Decided {
    /// It is stored, and closes the request.
    Taken,
    /// It is stored as one vote of several.
    Vote,
    /// It was not taken. Nothing runs because of it.
    Refused(Box<Refusal>),
}

/// Why a decision was not taken.
#[derive(Debug)]
pub(crate) struct Refusal {
    id: RequestId,
    pub(crate) status: StatusCode,
    pub(crate) problem: Option<Problem>,
    text: String,
}

impl Refusal {
    /// Whether the request cannot be decided any more.
    pub(crate) fn is_closed(&self) -> bool {
        let closed = [StatusCode::NOT_FOUND, StatusCode::GONE];
        let superseded = self.problem.as_ref().is_some_and(|problem| problem.code == "already_decided");
        closed.contains(&self.status) || superseded
    }

    /// As the end of a command.
    pub(crate) fn fail(&self) -> Fail {
        if self.status == StatusCode::UNAUTHORIZED {
            return Answer { status: self.status, text: self.text.clone() }.refusal();
        }
        let detail = match &self.problem {
            Some(problem) => crate::text::line(&problem.detail),
            None => format!("the server answered {}", self.status),
        };
        Fail::not_taken(format!("the decision was not taken: {detail}")).hint_opt(self.what_to_do())
    }

    fn what_to_do(&self) -> Option<String> {
        match self.status {
            StatusCode::CONFLICT => {
                Some(format!("`holdpoint show {}` says how the request stands now", self.id))
            }
            StatusCode::NOT_FOUND => Some("`holdpoint inbox` lists what is pending".into()),
            _ => None,
        }
    }
}

impl Client {
    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.call(Method::GET, path, &[], None).await?.read()
    }

    /// One request for a person.
    pub(crate) async fn interaction(&self, id: RequestId) -> Result<Interaction> {
        self.get(&format!("/v1/interactions/{id}")).await
    }

    /// Every pending request, page after page.
    pub(crate) async fn pending(&self, mut each: impl FnMut(Interaction)) -> Result<()> {
        self.pages("/v1/interactions?status=pending", &mut each).await
    }

    /// Every run, page after page, until `each` says that it is enough.
    pub(crate) async fn runs(&self, status: Option<&str>, mut each: impl FnMut(RunView)) -> Result<()> {
        let path = match status {
            Some(status) => format!("/v1/runs?status={status}"),
            None => "/v1/runs?".to_owned(),
        };
        self.pages(&path, &mut each).await
    }

    async fn pages<T: DeserializeOwned>(&self, path: &str, each: &mut impl FnMut(T)) -> Result<()> {
        let mut cursor: Option<String> = None;
        loop {
            let page: Page<T> = match &cursor {
                None => self.get(path.trim_end_matches('?')).await?,
                Some(cursor) => self.get(&format!("{path}&cursor={cursor}")).await?,
            };
            page.items.into_iter().for_each(&mut *each);
            match page.next_cursor {
                Some(next) if Some(&next) != cursor.as_ref() => cursor = Some(next),
                Some(_) | None => return Ok(()),
            }
        }
    }

    /// Posts a decision, strictly.
    pub(crate) async fn decide(&self, id: RequestId, decision: &DecisionRequest) -> Result<Decided> {
        let body = serde_json::to_string(decision)
            .map_err(|error| Fail::new(format!("the decision cannot be written: {error}")))?;
        let path = format!("/v1/interactions/{id}/decision");
        let key = uuid::Uuid::new_v4().to_string();
        let answer = self.call(Method::POST, &path, &[(IDEMPOTENCY_KEY, &key)], Some(body)).await?;
        Ok(match answer.status {
            StatusCode::ACCEPTED => Decided::Vote,
            status if status.is_success() => Decided::Taken,
            status => {
                let problem = answer.problem();
                Decided::Refused(Box::new(Refusal { id, status, problem, text: answer.text }))
            }
        })
    }

    /// One run.
    pub(crate) async fn run(&self, id: RunId) -> Result<RunView> {
        self.get(&format!("/v1/runs/{id}")).await
    }

    /// Cancels a run. False when it had ended already.
    pub(crate) async fn cancel(&self, id: RunId) -> Result<bool> {
        let path = format!("/v1/runs/{id}/cancel");
        let answer = self.call(Method::POST, &path, &[], Some("{}".into())).await?;
        match answer.status {
            StatusCode::OK => Ok(false),
            status if status.is_success() => Ok(true),
            _ => Err(answer.refusal()),
        }
    }

    /// The record of one run, row by row as it came.
    pub(crate) async fn audit(&self, run: RunId, mut each: impl FnMut(&RawValue)) -> Result<()> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Records {
            items: Vec<Box<RawValue>>,
            next_after: Option<u64>,
        }
        let mut after = 0;
        loop {
            let page: Records = self.get(&format!("/v1/audit?run={run}&after={after}")).await?;
            page.items.iter().for_each(|row| each(row));
            match page.next_after {
                Some(next) if next > after => after = next,
                Some(_) | None => return Ok(()),
            }
        }
    }

    /// Whether the chain of each run's record holds: of one run, or of all.
    pub(crate) async fn verify_audit(&self, run: Option<RunId>, mut each: impl FnMut(Chain)) -> Result<()> {
        let path = match run {
            Some(run) => format!("/v1/audit/verify?run={run}"),
            None => "/v1/audit/verify?".to_owned(),
        };
        self.pages(&path, &mut each).await
    }
}

/// How one run's record was found.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Chain {
    pub(crate) run_id: RunId,
    pub(crate) whole: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) records: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) broken_at: Option<u64>,
}
