#![allow(clippy::unwrap_used)] // The lint sees no test in a helper of a test.
//! The reader of event streams: any cut, any line ending, every bound.

use holdpoint_models::sse::{LINE_MAX_BYTES, STREAM_MAX_BYTES, SseError, SseReader, Step};

fn read(chunks: &[&[u8]]) -> Result<Vec<String>, SseError> {
    let mut events = Vec::new();
    let mut event = |data: &str| {
        events.push(data.to_owned());
        Step::More
    };
    let mut reader = SseReader::new();
    for chunk in chunks {
        reader.push(chunk, &mut event)?;
    }
    reader.finish(&mut event)?;
    Ok(events)
}

#[test]
fn fields_comments_and_spacing_are_read_as_the_standard_says() {
    for (stream, expected) in [
        ("data: a\n\ndata: b\n\n", vec!["a", "b"]),
        ("data:a\n\n", vec!["a"]),
        ("data:  a\n\n", vec![" a"]),
        ("data\n\n", vec![""]),
        ("data: a\ndata: b\n\n", vec!["a\nb"]),
        (": OPENROUTER PROCESSING\n\n\n\ndata: a\n\n", vec!["a"]),
        ("event: ping\n\n", vec![]),
        ("event: message\nid: 7\nretry: 3\ndata: a\n\n", vec!["a"]),
        ("dataset: a\n\n", vec![]),
        ("\u{FEFF}data: a\n\n", vec!["a"]),
        ("data: a\n\n\u{FEFF}data: b\n\n", vec!["a"]),
        ("data: a", vec!["a"]),
        ("data: a\n", vec!["a"]),
        ("", vec![]),
        ("\n\r\n\r", vec![]),
    ] {
        assert_eq!(read(&[stream.as_bytes()]).unwrap(), expected, "{stream:?}");
    }
}

#[test]
fn every_line_ending_and_every_cut_gives_the_same_events() {
    let stream =
        "\u{FEFF}: hello\ndata: {\"a\":\"å😀\"}\n\nevent: x\ndata: one\ndata: two\n\ndata: [DONE]\n\n";
    let expected = read(&[stream.as_bytes()]).unwrap();
    assert_eq!(expected.len(), 3);
    let mut mixed = String::new();
    for (n, line) in stream.split_inclusive('\n').enumerate() {
        mixed.push_str(line.trim_end_matches('\n'));
        // Never a CR before an empty line that ends in LF: that pair would be one ending.
        mixed.push_str(["\r\n", "\n", "\r"][n % 3]);
    }
    // https://github.com/a2aproject/a2a-js/issues/714 (CR alone), https://github.com/rexxars/eventsource-parser/issues/17
    for form in [stream.to_owned(), stream.replace('\n', "\r\n"), stream.replace('\n', "\r"), mixed] {
        let bytes = form.as_bytes();
        for at in 0..=bytes.len() {
            assert_eq!(read(&[&bytes[..at], &bytes[at..]]).unwrap(), expected, "cut at {at} of {form:?}");
            assert_eq!(read(&[&bytes[..at], b"", &bytes[at..]]).unwrap(), expected, "empty chunk at {at}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(&single).unwrap(), expected, "byte by byte of {form:?}");
    }
}

#[test]
fn reading_stops_where_the_reader_of_the_events_says() {
    let mut seen = 0;
    let step = SseReader::new()
        .push(b"data: a\n\ndata: b\n\n", &mut |_| {
            seen += 1;
            Step::Done
        })
        .unwrap();
    assert_eq!((step, seen), (Step::Done, 1));
}

#[test]
fn a_line_without_an_end_is_refused_at_the_bound() {
    let filler = vec![b'x'; LINE_MAX_BYTES - 6];
    assert_eq!(read(&[b"data: ", &filler[..filler.len() - 1], b"\n"]).unwrap()[0].len(), LINE_MAX_BYTES - 7);
    assert_eq!(read(&[b"data: ", &filler, b"x"]), Err(SseError::LineTooLong));
    // The bound holds for a line that comes whole, and for many lines that make one event, too.
    let mut whole = b"data: ".to_vec();
    whole.extend_from_slice(&filler);
    whole.extend_from_slice(b"xx\n");
    assert_eq!(read(&[&whole]), Err(SseError::LineTooLong));
    let half = [b"data: ".as_slice(), &vec![b'x'; LINE_MAX_BYTES / 2], b"\n"].concat();
    assert_eq!(read(&[&half, &half, &half]), Err(SseError::LineTooLong));
}

#[test]
fn a_stream_without_an_end_is_refused_at_the_bound() {
    let comment = [b": ".as_slice(), &vec![b'x'; 1024 * 1024 - 3], b"\n"].concat();
    let mut reader = SseReader::new();
    for _ in 0..STREAM_MAX_BYTES / comment.len() as u64 {
        reader.push(&comment, &mut |_| Step::More).unwrap();
    }
    assert_eq!(reader.push(b"\n", &mut |_| Step::More), Err(SseError::StreamTooLong));
}

#[test]
fn bytes_that_are_no_text_are_refused_not_replaced() {
    assert_eq!(read(&[b"data: {\"a\":\"\xFF\"}\n\n"]), Err(SseError::NotUtf8));
    assert_eq!(read(&[b": \xFF\n\ndata: a\n\n"]).unwrap(), ["a"], "a comment is nobody's");
}
