// A server of one tool over stdio, which leaves a line for each order it pays. Line-delimited JSON-RPC, and no more of the
// protocol than a client needs.
import { appendFileSync } from "node:fs";
import { createInterface } from "node:readline";

const pay = {
  name: "pay",
  description: "Pays an order.",
  inputSchema: {
    type: "object",
    properties: { order: { type: "string" } },
    required: ["order"],
    additionalProperties: false,
  },
};

function answer({ method, params }) {
  switch (method) {
    case "initialize":
      return {
        protocolVersion: params.protocolVersion,
        capabilities: { tools: {} },
        serverInfo: { name: "pay", version: "1" },
      };
    case "tools/list":
      return { tools: [pay] };
    case "tools/call":
      appendFileSync("paid.txt", `${params.arguments.order}\n`);
      return { content: [{ type: "text", text: `paid order ${params.arguments.order}` }] };
    default:
      return undefined;
  }
}

createInterface({ input: process.stdin }).on("line", (line) => {
  const message = JSON.parse(line);
  if (message.id === undefined) return;
  const result = answer(message);
  const said = result ? { result } : { error: { code: -32601, message: "there is no such method here" } };
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id: message.id, ...said })}\n`);
});
