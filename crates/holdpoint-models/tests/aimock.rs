//! The wires against a model server that nobody here wrote: whole exchanges of two rounds, with a declined and an
//! approved call, streamed and not; a cut stream; a refusal that is repeated.
#![allow(clippy::unwrap_used)] // The lint sees no test in a helper of a test.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use holdpoint_core::message::{Message, ResultContent, ToolMessage, UserMessage};
use holdpoint_core::tool::ToolDefinition;
use holdpoint_models::routing::{ModelConfig, Models, ProcessSecrets, Provider};
use holdpoint_models::{Model, ModelRequest, Pieces, Reply, ReplyEnd, Usage};
use holdpoint_protocol::{Executed, Status};

const INSTALL: &str = "npm ci --prefix crates/holdpoint-models/tests/aimock";

/// The server. It also ends with its standard input, so that it never outlives a test that was ended from outside.
struct Aimock {
    url: String,
    process: Child,
}

impl Aimock {
    fn start() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/aimock");
        assert!(
            folder.join("node_modules/@copilotkit/aimock").is_dir(),
            "the independent model server is not installed; install it with\n  {INSTALL}"
        );
        let mut process = Command::new("node")
            .arg("serve.mjs")
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("`node` (20 or later) cannot be started: {error}"));
        let mut url = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut url).unwrap();
        assert!(url.starts_with("http://127.0.0.1:"), "the server did not say where it is: {url:?}");
        Self { url: url.trim().to_owned(), process }
    }

    fn model(&self, provider: Provider) -> Arc<dyn Model> {
        let mut config = ModelConfig::new(provider, "some-model");
        config.base_url = Some(format!("{}/v1", self.url));
        config.timeouts.first_byte_ms = Some(10_000);
        // Two of the providers insist on a key; the server checks none. This variable is always set in a test.
        config.api_key_env = Some("CARGO_PKG_NAME".into());
        let secrets = ProcessSecrets { folder: PathBuf::from(env!("CARGO_MANIFEST_DIR")) };
        Models::from_config(&BTreeMap::from([("m".to_owned(), config)]), &secrets)
            .unwrap()
            .get("m")
            .unwrap()
            .model
            .clone()
    }
}

impl Drop for Aimock {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

#[derive(Default)]
struct Watched(String);

impl Pieces for Watched {
    fn text(&mut self, piece: &str) {
        self.0.push_str(piece);
    }
    fn reasoning(&mut self, _piece: &str) {}
}

async fn ask(model: &Arc<dyn Model>, messages: &[Arc<Message>], stream: bool) -> (Reply, String) {
    let schema = serde_json::json!({"type": "object", "properties": {"sum": {"type": "integer"}}});
    let request = ModelRequest {
        instructions: "You pay.".into(),
        messages: messages.to_vec(),
        tools: [ToolDefinition::new("pay", "Pays", schema)].into(),
        stream,
        cancel: Default::default(),
    };
    let mut watched = Watched::default();
    let reply = model.reply(&request, &mut watched).await.unwrap();
    (reply, watched.0)
}

fn user(text: &str) -> Arc<Message> {
    Arc::new(Message::User(UserMessage::text(text)))
}

fn result(index: u32, status: Status, executed: Executed, content: ResultContent) -> Arc<Message> {
    let (id, name) = (String::new(), "pay".to_owned());
    Arc::new(Message::Tool(ToolMessage {
        index,
        id,
        name,
        status,
        code: "X".into(),
        executed,
        content,
        is_error: false,
    }))
}

const WIRES: [Provider; 3] = [Provider::OpenAiCompatible, Provider::Anthropic, Provider::OpenAiResponses];

#[tokio::test]
async fn a_declined_and_an_approved_call_go_through_two_rounds_on_every_wire() {
    let server = Aimock::start();
    for provider in WIRES {
        for stream in [true, false] {
            let model = server.model(provider);
            let mut history = vec![user("pay both")];
            let (reply, shown) = ask(&model, &history, stream).await;
            let title = format!("{provider}, streamed: {stream}");
            assert_eq!(reply.end, ReplyEnd::Complete, "{title}");
            assert_eq!(reply.message.text(), "On it.", "{title}");
            assert_eq!(shown, if stream { "On it." } else { "" }, "{title}");
            let calls: Vec<_> = reply
                .message
                .calls()
                .map(|c| (c.id.as_str(), c.name.as_str(), c.arguments.as_str()))
                .collect();
            assert_eq!(
                calls,
                [("call_one", "pay", r#"{"sum":1,"to":"Åsa"}"#), ("call_two", "pay", r#"{"sum":2}"#)],
                "{title}"
            );

            let declined = serde_json::value::RawValue::from_string(
                r#"{"status":"declined","code":"DECLINED","executed":"no","message":"A person declined it."}"#.into(),
            );
            history.push(Arc::new(Message::Assistant(reply.message)));
            history.push(result(0, Status::Declined, Executed::No, ResultContent::Json(declined.unwrap())));
            history.push(result(1, Status::Succeeded, Executed::Yes, ResultContent::Text("paid 2".into())));
            let (reply, shown) = ask(&model, &history, stream).await;
            let text = "One was declined, one was paid.";
            assert_eq!((reply.end, reply.message.text().as_str()), (ReplyEnd::Complete, text), "{title}");
            assert_eq!(shown, if stream { text } else { "" }, "{title}");
            assert_eq!(reply.usage, Usage { input_tokens: 21, output_tokens: 7 }, "{title}");
        }
    }
}

#[tokio::test]
async fn nothing_stands_of_a_stream_that_is_cut_on_any_wire() {
    let server = Aimock::start();
    for provider in WIRES {
        let model = server.model(provider);
        let request = ModelRequest {
            instructions: "".into(),
            messages: vec![user("cut me off")],
            tools: [].into(),
            stream: true,
            cancel: Default::default(),
        };
        match model.reply(&request, &mut Watched::default()).await {
            Ok(reply) => {
                assert!(matches!(reply.end, ReplyEnd::Interrupted(_)), "{provider}: {:?}", reply.end);
                assert_eq!(reply.message.calls().count(), 0, "{provider}");
            }
            Err(error) => assert_eq!(error.code, "provider_error", "{provider}: {error}"),
        }
    }
}

#[tokio::test]
async fn a_refusal_that_asks_for_patience_gets_it() {
    let server = Aimock::start();
    let model = server.model(Provider::OpenAiCompatible);
    let (reply, _) = ask(&model, &[user("be patient")], true).await;
    assert_eq!(reply.message.text(), "Thank you.");
}
