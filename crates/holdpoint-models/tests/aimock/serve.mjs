// Starts the independent model server on a free port, prints its address, and ends when its standard input does.
import { LLMock } from "@copilotkit/aimock";

const mock = new LLMock({ port: 0, strict: true, logLevel: "silent" });

// A batch of two calls; the second round is only answered when both results came back, the last of them "paid 2".
mock.addFixture({
  match: { userMessage: "pay both", hasToolResult: false },
  response: {
    content: "On it.",
    reasoning: "Two payments.",
    toolCalls: [
      { id: "call_one", name: "pay", arguments: '{"sum":1,"to":"Åsa"}' },
      { id: "call_two", name: "pay", arguments: '{"sum":2}' },
    ],
  },
  chunkSize: 5,
});
mock.addFixture({
  match: { userMessage: "pay both", hasToolResult: true, toolCallId: "call_two", toolResultContains: "paid 2" },
  response: {
    content: "One was declined, one was paid.",
    // In each provider's own words.
    usage: { prompt_tokens: 21, completion_tokens: 7, input_tokens: 21, output_tokens: 7 },
  },
  chunkSize: 7,
});

// A stream that ends in the middle of a call.
mock.addFixture({
  match: { userMessage: "cut me off" },
  response: { toolCalls: [{ id: "call_cut", name: "pay", arguments: '{"sum":123456789,"to":"nobody"}' }] },
  chunkSize: 4,
  truncateAfterChunks: 4,
});

// Refused once, then answered.
mock.addFixture({
  match: { userMessage: "be patient", sequenceIndex: 0 },
  response: { error: { message: "Slow down", type: "rate_limit_error" }, status: 429, retryAfter: 1 },
});
mock.addFixture({
  match: { userMessage: "be patient", sequenceIndex: 1 },
  response: { content: "Thank you." },
});

await mock.start();
console.log(mock.url);
process.stdin.on("end", () => process.exit(0));
process.stdin.resume();
