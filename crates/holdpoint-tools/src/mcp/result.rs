//! From what a server answers to what the model reads.

use holdpoint_core::message::{ResultContent, ResultPart};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

use crate::{ToolError, ToolOutput};

/// The most text of one result, in bytes; what is over is cut, and said.
const TEXT_MAX_BYTES: usize = 1024 * 1024;

pub fn output(result: CallToolResult) -> Result<ToolOutput, ToolError> {
    let failed = result.is_error == Some(true);
    let content = content(result);
    if failed {
        return Err(ToolError::new("TOOL_ERROR", as_text(&content)));
    }
    Ok(ToolOutput { content })
}

fn content(result: CallToolResult) -> ResultContent {
    let mut parts: Vec<ResultPart> = result.content.into_iter().map(part).collect();
    if let Some(structured) = result.structured_content {
        // By the protocol's advice the same JSON stands there as text, for old clients. Once is enough.
        parts.retain(|part| !repeats(part, &structured));
        if parts.is_empty()
            && let Ok(json) = serde_json::value::to_raw_value(&structured)
        {
            return ResultContent::Json(json);
        }
        parts.push(ResultPart::Text(structured.to_string()));
    }
    let mut parts: Vec<ResultPart> = parts.into_iter().map(bounded).collect();
    match (parts.pop(), parts.is_empty()) {
        (None, _) => ResultContent::Text("[the tool returned nothing]".into()),
        (Some(ResultPart::Text(text)), true) => ResultContent::Text(text),
        (Some(last), _) => {
            parts.push(last);
            ResultContent::Parts(parts)
        }
    }
}

fn part(block: ContentBlock) -> ResultPart {
    match block {
        ContentBlock::Text(text) => ResultPart::Text(text.text),
        ContentBlock::Image(image) => ResultPart::Image { media_type: image.mime_type, data: image.data },
        ContentBlock::Audio(audio) => left_out("audio", &audio.mime_type, audio.data.len()),
        ContentBlock::Resource(embedded) => resource(embedded.resource),
        ContentBlock::ResourceLink(link) => {
            ResultPart::Text(format!("[resource {}: {}]", link.uri, link.name))
        }
        _ => unknown(),
    }
}

fn resource(resource: ResourceContents) -> ResultPart {
    match resource {
        ResourceContents::TextResourceContents { uri, text, .. } => {
            ResultPart::Text(format!("[resource {uri}]\n{text}"))
        }
        ResourceContents::BlobResourceContents { mime_type: Some(media_type), blob, .. }
            if media_type.starts_with("image/") =>
        {
            ResultPart::Image { media_type, data: blob }
        }
        ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
            left_out(&format!("resource {uri}"), mime_type.as_deref().unwrap_or("unknown type"), blob.len())
        }
        _ => unknown(),
    }
}

/// The types of content are open: there will be kinds that are not known yet.
fn unknown() -> ResultPart {
    ResultPart::Text("[content of a kind that is not known here]".into())
}

fn left_out(what: &str, media_type: &str, bytes: usize) -> ResultPart {
    ResultPart::Text(format!("[{what}, {media_type}, {bytes} bytes as base64: not passed on]"))
}

fn repeats(part: &ResultPart, structured: &Value) -> bool {
    match part {
        ResultPart::Text(text) => serde_json::from_str::<Value>(text).is_ok_and(|value| value == *structured),
        ResultPart::Image { .. } => false,
    }
}

fn bounded(part: ResultPart) -> ResultPart {
    match part {
        ResultPart::Text(text) if text.len() > TEXT_MAX_BYTES => {
            let end = text.floor_char_boundary(TEXT_MAX_BYTES);
            ResultPart::Text(format!("{}\n[{} bytes left out]", &text[..end], text.len() - end))
        }
        ResultPart::Text(_) | ResultPart::Image { .. } => part,
    }
}

/// For an error, which is text.
fn as_text(content: &ResultContent) -> String {
    match content {
        ResultContent::Text(text) => text.clone(),
        ResultContent::Json(json) => json.get().to_owned(),
        ResultContent::Parts(parts) => {
            let texts: Vec<&str> = parts
                .iter()
                .map(|part| match part {
                    ResultPart::Text(text) => text.as_str(),
                    ResultPart::Image { .. } => "[an image]",
                })
                .collect();
            texts.join("\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(result: Value) -> Value {
        let result: CallToolResult = serde_json::from_value(result).unwrap();
        match output(result) {
            Ok(output) => serde_json::to_value(output.content).unwrap(),
            Err(error) => json!({"error": error.code, "message": error.message}),
        }
    }

    #[test]
    fn each_kind_of_content_is_kept_or_named() {
        for (result, expected) in [
            (json!({"content": [{"type": "text", "text": "3.0"}]}), json!({"text": "3.0"})),
            (json!({"content": []}), json!({"text": "[the tool returned nothing]"})),
            (
                json!({"content": [{"type": "text", "text": "{\"a\": 1}"}], "structuredContent": {"a": 1}}),
                json!({"json": {"a": 1}}),
            ),
            (json!({"content": [], "structuredContent": null}), json!({"json": null})),
            (
                json!({"content": [{"type": "text", "text": "one"}], "structuredContent": {"a": 1}}),
                json!({"parts": [{"text": "one"}, {"text": "{\"a\":1}"}]}),
            ),
            (
                json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
                json!({"parts": [{"text": "a"}, {"text": "b"}]}),
            ),
            (
                json!({"content": [{"type": "image", "data": "aWk=", "mimeType": "image/png"}]}),
                json!({"parts": [{"image": {"media_type": "image/png", "data": "aWk="}}]}),
            ),
            (
                json!({"content": [{"type": "audio", "data": "aWk=", "mimeType": "audio/wav"}]}),
                json!({"text": "[audio, audio/wav, 4 bytes as base64: not passed on]"}),
            ),
            (
                json!({"content": [{"type": "resource", "resource": {"uri": "file:///a", "text": "hi"}}]}),
                json!({"text": "[resource file:///a]\nhi"}),
            ),
            (
                json!({"content": [{"type": "resource_link", "uri": "file:///a", "name": "a"}]}),
                json!({"text": "[resource file:///a: a]"}),
            ),
            (
                json!({"content": [{"type": "text", "text": "no such file"}], "isError": true}),
                json!({"error": "TOOL_ERROR", "message": "no such file"}),
            ),
        ] {
            assert_eq!(read(result.clone()), expected, "{result}");
        }
    }

    #[test]
    fn a_text_over_the_bound_is_cut_and_says_by_how_much() {
        let fits = read(json!({"content": [{"type": "text", "text": "x".repeat(TEXT_MAX_BYTES)}]}));
        assert_eq!(fits["text"].as_str().unwrap().len(), TEXT_MAX_BYTES);
        let over = read(
            json!({"content": [{"type": "text", "text": format!("{}é", "x".repeat(TEXT_MAX_BYTES - 1))}]}),
        );
        assert!(over["text"].as_str().unwrap().ends_with("xx\n[2 bytes left out]"));
    }
}
