//! How a stored run ended.

use holdpoint_protocol::{Finish, RunView, ToolResult};

use crate::outcome::Ended;

/// The end of a run as its view tells it.
pub(crate) fn of_view(view: &RunView) -> Option<Ended> {
    if let Some(error) = &view.error {
        return Some(Ended::Failed(error.clone()));
    }
    let results =
        view.results.as_ref().and_then(|raw| serde_json::from_str::<Vec<ToolResult>>(raw.get()).ok());
    Some(Ended::Finished(Finish {
        status: view.finish?,
        text: view.text.clone().unwrap_or_default(),
        results,
        usage: view.usage.unwrap_or_default(),
    }))
}
