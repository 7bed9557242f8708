//! From a request that was let in to the handler of its route.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{RawPathParams, Request};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use bytes::Bytes;
use holdpoint::core::limits::BODY_MAX_BYTES;
use http::{HeaderMap, Method, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::REQUEST_TIMEOUT;
use crate::app::App;
use crate::endpoint::Endpoint;
use crate::front::too_large;
use crate::handlers;
use crate::query::Query;
use crate::refusal::Refusal;

/// A request as handlers see it.
pub(crate) struct Call {
    pub(crate) endpoint: Endpoint,
    /// The one variable part of the path, where it has one.
    pub(crate) id: String,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The router: every endpoint under its path, and a refusal that says what there is for everything else.
pub(crate) fn router(app: &Arc<App>) -> Router {
    let mut paths: BTreeMap<&'static str, (MethodRouter, Vec<Method>)> = BTreeMap::new();
    for endpoint in Endpoint::ALL {
        let app = Arc::clone(app);
        let handler = move |params: RawPathParams, request: Request| {
            let id = params.iter().next().map(|(_, value)| value.to_owned()).unwrap_or_default();
            async move {
                let mut response =
                    answer(&app, endpoint, id, request).await.unwrap_or_else(IntoResponse::into_response);
                response.extensions_mut().insert(endpoint);
                response
            }
        };
        let filter = if endpoint.method() == Method::POST { MethodFilter::POST } else { MethodFilter::GET };
        let (methods, allowed) = paths.entry(endpoint.path()).or_default();
        *methods = std::mem::take(methods).merge(on(filter, handler));
        allowed.push(endpoint.method());
    }
    let mut router = Router::new();
    for (path, (methods, allowed)) in paths {
        router = router.route(path, methods.fallback(move || async move { wrong_method(&allowed) }));
    }
    router.fallback(|| async { Refusal::not_found("there is no such route; /openapi.json lists them") })
}

fn wrong_method(allowed: &[Method]) -> Refusal {
    let mut allowed: Vec<&str> = allowed.iter().map(Method::as_str).collect();
    if allowed.contains(&"GET") {
        allowed.push("HEAD");
    }
    let allowed = allowed.join(", ");
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", format!("this route takes: {allowed}"))
        .header(header::ALLOW, &allowed)
}

async fn answer(
    app: &Arc<App>,
    endpoint: Endpoint,
    id: String,
    request: Request,
) -> Result<Response, Refusal> {
    let (head, body) = request.into_parts();
    let query = Query::read(head.uri.query().unwrap_or_default());
    let body =
        if endpoint.method() == Method::POST { read(body, app.body_timeout).await? } else { Bytes::new() };
    let call = Call { endpoint, id, query, headers: head.headers, body };
    let handled = handlers::handle(app, call);
    if endpoint.waits_for_a_run() {
        return handled.await;
    }
    tokio::time::timeout(REQUEST_TIMEOUT, handled).await.map_err(|_elapsed| Refusal::timed_out())?
}

/// Reads a body whole: bounded in size and in time, whatever its head said.
async fn read(body: Body, within: Duration) -> Result<Bytes, Refusal> {
    let read = Limited::new(body, BODY_MAX_BYTES).collect();
    match tokio::time::timeout(within, read).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Refusal::bad_request("body_cut", "the body broke off")),
        Err(_elapsed) => {
            let detail = "the body took too long to arrive";
            Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", detail))
        }
    }
}
