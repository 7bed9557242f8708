//! The workload on rig: a scripted model and three tools. Each run writes what it did into its task's record.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future;

use holdpoint_bench_harness::{Record, work};
use rig_agent::completion::{CompletionRequest, CompletionResponse, Message, Usage};
use rig_agent::tool::{Tool, ToolContext};
use rig_core::driver::{Exchange, Opened, Opening, Transport};
use rig_core::message::{AssistantContent, Origin, ToolName, UserContent};
use rig_core::test_utils::{MockFrame, MockScript};
use serde_json::Value;

tokio::task_local!(static RECORD: RefCell<Record>);

/// Runs a future with a record of its own.
pub async fn recorded<T>(run: impl Future<Output = T>) -> T {
    RECORD.scope(RefCell::default(), run).await
}

/// Reads or writes the record of the run this task works on.
pub fn record<T>(what: impl FnOnce(&mut Record) -> T) -> T {
    RECORD.with(|record| what(&mut record.borrow_mut()))
}

/// No result in the request: the calls; else the last word.
#[derive(Clone)]
pub struct Script(pub &'static [work::Call]);

impl Script {
    fn answer(&self, request: &CompletionRequest) -> Vec<AssistantContent> {
        let mut seen = Vec::new();
        for message in request.chat_history.iter() {
            if let Message::User { content } = &**message {
                for part in content.iter() {
                    if let UserContent::ToolResult(result) = part {
                        seen.push(result.call.to_string());
                    }
                }
            }
        }
        record(|r| r.model_calls += 1);
        if !seen.is_empty() {
            record(|r| r.seen = seen);
            return vec![AssistantContent::text(work::FINAL)];
        }
        let call = |(id, name, text): &work::Call| {
            let arguments: Value = serde_json::from_str(text).expect("the script is valid JSON");
            AssistantContent::tool_call(*id, ToolName::new(*name).expect("a valid name"), arguments)
        };
        self.0.iter().map(call).collect()
    }
}

impl Transport<MockScript> for Script {
    fn send(&self, request: CompletionRequest, _: Exchange) -> Opening<MockFrame> {
        let origin = Origin::new("local", "scripted", "");
        let reply =
            CompletionResponse::new(self.answer(&request), Usage::new().total_tokens(2), origin, Value::Null);
        Opening::ready(Opened::new(futures::stream::iter([Ok(MockFrame::Response(Box::new(reply)))])))
    }
}

macro_rules! tool {
    ($tool:ident, $properties:expr, $output:expr) => {
        #[derive(Clone)]
        pub struct $tool;

        impl Tool for $tool {
            const NAME: &'static str = stringify!($tool);
            type Args = Value;
            type Output = String;
            type Error = Infallible;

            fn description(&self) -> String {
                concat!(stringify!($tool), " tool").into()
            }

            fn parameters(&self) -> Value {
                work::schema(&$properties)
            }

            async fn call(&self, _: &mut ToolContext, _: Value) -> Result<String, Infallible> {
                record(|r| r.ran(Self::NAME));
                Ok($output.into())
            }
        }
    };
}
tool!(Read, ["path"], work::READ_OUT);
tool!(Write, ["path", "content"], work::WRITE_OUT);
tool!(Bash, ["command"], work::BASH_OUT);
