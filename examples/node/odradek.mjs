// Starts Odradek brokers for tests in Node: copy this file into your project.
//
//   const broker = await Odradek.start("--topic", "orders:4");
//   const kafka = new Kafka({ brokers: broker.bootstrapServers.split(",") });
//   await broker.addFault("EndTxn nth=1 -> lose-answer");
//   await broker.reset();
//   await broker.stop();
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

export class Odradek {
  /** Starts `odradek serve` with further options, on free ports. The broker never outlives this process. */
  static async start(...options) {
    const fixed = ["serve", "--port", "0", "--control-port", "0", "--log-format", "json", "--ends-with-stdin"];
    const process = spawn("odradek", [...fixed, ...options], { stdio: ["pipe", "pipe", "pipe"] });
    let errors = "";
    process.stderr.on("data", (data) => (errors += data));
    return new Promise((resolve, reject) => {
      process.once("error", (error) => reject(new Error(`odradek is not on PATH: ${error.message}`)));
      process.once("exit", () => reject(new Error(`the broker did not start: ${errors}`)));
      // The log line "started" has the ports; the log continues after it.
      createInterface({ input: process.stdout }).on("line", (text) => {
        const line = JSON.parse(text);
        if (line.event === "started") resolve(new Odradek(process, line));
      });
    });
  }

  constructor(process, { advertised, control }) {
    this.process = process;
    /** The addresses of all nodes. */
    this.bootstrapServers = advertised.map((address) => address.split("://")[1]).join(",");
    /** The URL of the control port; docs/control.md lists its operations. */
    this.control = control;
  }

  /** Resets the broker to the state after its start: the topics of the options, and no groups, transactional ids or rules. */
  reset() {
    return this.#call("POST", "/v1/reset", {});
  }

  /** Adds a rule (docs/faults.md) and returns its id. */
  async addFault(rule) {
    return (await this.#call("POST", "/v1/faults", { rule })).id;
  }

  /** Returns the number of hits of a rule. */
  async hits(id) {
    return (await this.#call("GET", `/v1/faults/${id}`)).hits;
  }

  /** Returns why readers of a topic stop, like `odradek explain`, for the message of a failed test. */
  async explain(topic) {
    const { explanations } = await this.#call("GET", `/v1/explain?topic=${encodeURIComponent(topic)}`);
    return explanations.flatMap(({ lines }) => lines).join("\n");
  }

  /** Moves the broker's clock forward, for example by "7d" or "90s". */
  advance(by) {
    return this.#call("POST", "/v1/clock/advance", { by });
  }

  async #call(method, path, body) {
    const response = await fetch(this.control + path, {
      method,
      headers: { "Content-Type": "application/json" },
      body: body && JSON.stringify(body),
    });
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return response.status === 204 ? undefined : response.json();
  }

  stop() {
    return new Promise((resolve) => {
      this.process.once("exit", resolve);
      this.process.stdin.end();
    });
  }
}
