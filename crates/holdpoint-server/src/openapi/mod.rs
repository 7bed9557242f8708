//! The OpenAPI document: made from the list of routes, so that it cannot name one that is not there.
//!
//! What each route takes and gives stands in [`routes`]; the bodies are JSON Schemas in `schemas.json`. A test sends
//! every route what it should and should not be sent, and holds the answers against this document.

mod routes;

use std::sync::OnceLock;

use http::Method;
use serde_json::{Map, Value, json};

use crate::endpoint::Endpoint;
use routes::{Body, Doc, Parameter, Place};

const SCHEMAS: &str = include_str!("schemas.json");

/// The document.
pub(crate) fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(build)
}

fn build() -> Value {
    let mut paths = Map::new();
    for endpoint in Endpoint::ALL {
        let path = paths.entry(endpoint.path()).or_insert_with(|| json!({}));
        let method = endpoint.method().as_str().to_ascii_lowercase();
        path[method] = operation(endpoint, &routes::doc(endpoint));
    }
    // A file of ours, read by a test; were it broken, the routes would still be listed.
    let schemas: Value = serde_json::from_str(SCHEMAS).unwrap_or_default();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Holdpoint",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Agents whose calls stop at a hold point until a person has released exactly that call.",
            "license": {"name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT"},
        },
        "security": [{"operator": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"operator": {
                "type": "http",
                "scheme": "bearer",
                "description": "The operator's token, shown once when the server starts.",
            }},
            "schemas": schemas,
        },
    })
}

fn operation(endpoint: Endpoint, doc: &Doc) -> Value {
    let posts = endpoint.method() == Method::POST;
    let mut parameters: Vec<Value> =
        path_parameters(endpoint).chain(doc.parameters.iter().map(parameter)).collect();
    if posts {
        parameters.push(parameter(&routes::IDEMPOTENCY_KEY));
    }
    let mut responses = Map::new();
    for (status, description, body) in doc.responses {
        responses.insert(status.to_string(), json!({"description": description, "content": content(body)}));
    }
    for (status, description) in problems(endpoint, doc) {
        responses.entry(status.to_string()).or_insert_with(|| problem(description));
    }
    let mut operation = json!({
        "operationId": format!("{endpoint:?}"),
        "summary": doc.summary,
        "parameters": parameters,
        "responses": responses,
    });
    if let Some(schema) = doc.request {
        let required = schema != "Empty";
        operation["requestBody"] =
            json!({"required": required, "content": {"application/json": {"schema": reference(schema)}}});
    }
    if Endpoint::is_open(endpoint.path()) {
        operation["security"] = json!([]);
    }
    operation
}

/// What every route of its kind can say, beside what is its own.
fn problems(endpoint: Endpoint, doc: &Doc) -> Vec<(u16, &'static str)> {
    let mut problems = vec![
        (400, "Something in the request cannot be read."),
        (403, "The page that sends this may not."),
        (421, "The server was called by a name that is not its own."),
        (500, "Something went wrong in the server."),
        (503, "The store is away, or the server is stopping; try again."),
    ];
    if !Endpoint::is_open(endpoint.path()) {
        problems.push((401, "The operator's token is missing or wrong."));
    }
    if endpoint.path().contains('{') {
        problems.push((404, "There is no such thing."));
    }
    if endpoint.method() == Method::POST {
        problems.extend([
            (408, "The body took too long to arrive."),
            (413, "The body is too large."),
            (415, "The body is not plain JSON."),
            (422, "What was sent can be read, but does not do."),
            (507, "There is no room left to store this."),
        ]);
    }
    problems.extend(doc.problems);
    problems
}

fn problem(description: &str) -> Value {
    json!({"description": description, "content": {"application/problem+json": {"schema": reference("Problem")}}})
}

fn content(body: &Body) -> Value {
    match body {
        Body::Nothing => json!({}),
        Body::Json(schema) => json!({"application/json": {"schema": reference(schema)}}),
        Body::Events => json!({"text/event-stream": {"schema": {"type": "string"}}}),
        Body::Text => json!({"text/plain": {"schema": {"type": "string"}}}),
    }
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

fn path_parameters(endpoint: Endpoint) -> impl Iterator<Item = Value> {
    let names = endpoint.path().split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names.map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
}

fn parameter(parameter: &Parameter) -> Value {
    let place = match parameter.place {
        Place::Query => "query",
        Place::Header => "header",
    };
    json!({
        "name": parameter.name,
        "in": place,
        "description": parameter.description,
        "schema": {"type": parameter.kind},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_that_is_named_is_there() {
        let document = document();
        let text = document.to_string();
        let mut named = 0;
        for piece in text.split("#/components/schemas/").skip(1) {
            let name = piece.split('"').next().unwrap();
            assert!(document["components"]["schemas"][name].is_object(), "{name}");
            named += 1;
        }
        assert!(named > 50);
    }
}
