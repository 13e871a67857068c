// What the page asks, with addresses relative to its own, so that any base path fits.

/** A refusal, with what the server said of it. */
export class Refused extends Error {
  constructor(status, facts) {
    super(facts.what);
    this.status = status;
    this.facts = facts;
  }
}

const PLAIN = {
  401: "You are not logged in any more: load Airflow's page again.",
  403: "You may not do this: Airflow does not let you run this DAG.",
  404: "There is no such pipeline, or none that you may look at.",
};

async function answer(response) {
  const body = await response.json().catch(() => null);
  if (response.ok) return body;
  const facts = body?.error ?? { what: PLAIN[response.status] ?? detail(body, response) };
  throw new Refused(response.status, facts);
}

function detail(body, response) {
  const told = body?.detail;
  if (typeof told === "string") return told;
  if (Array.isArray(told)) return told.map((each) => each.msg).join("; ");
  return `The server answered ${response.status}.`;
}

async function send(path, options = {}) {
  let response;
  try {
    response = await fetch(new URL(path, document.baseURI), options);
  } catch {
    throw new Refused(0, { what: "The API server does not answer." });
  }
  return answer(response);
}

export const get = (path) => send(path);

export const post = (path, body = {}) => write("POST", path, body);
export const patch = (path, body) => write("PATCH", path, body);

const write = (method, path, body) =>
  send(path, {
    method,
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });

/** The address of one pipeline. */
export const pipelinePath = (row) =>
  `api/pipelines/${encodeURIComponent(row.dag_id)}/${encodeURIComponent(row.pipeline)}`;
