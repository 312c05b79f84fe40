// Shows the contract. Everything is inserted as text nodes, and only the contract is loaded.
"use strict";

const make = (tag, text, parent) => {
  const element = document.createElement(tag);
  element.textContent = text;
  parent.append(element);
  return element;
};

const named = (schema) => schema && schema.$ref ? schema.$ref.split("/").pop() : JSON.stringify(schema);

const shape = (content) => {
  const [kind, media] = Object.entries(content || {})[0] || [];
  return kind ? `${named(media.schema)} (${kind})` : "";
};

const show = (main, path, method, operation) => {
  const section = make("section", "", main);
  const security = (operation.security || [])[0] || {};
  const scope = security.token ? security.token[0] || "any token" : "public";
  make("code", scope, section).className = "scope";
  make("h2", `${method.toUpperCase()} ${path}`, section);
  make("p", [operation.summary, operation.description].filter(Boolean).join(" "), section);
  const details = make("details", "", section);
  make("summary", "parameters, body, responses", details);
  const lines = (operation.parameters || []).map((p) => `${p.in} ${p.name}  ${p.description || ""}`);
  if (operation.requestBody) lines.push(`body ${shape(operation.requestBody.content)}`);
  for (const [status, answer] of Object.entries(operation.responses || {})) {
    lines.push(`${status} ${answer.description} ${shape(answer.content)}`);
  }
  make("pre", lines.join("\n"), details);
};

const start = async () => {
  const contract = await (await fetch("/openapi.json")).json();
  const main = document.querySelector("main");
  document.getElementById("status").textContent = contract.info.description;
  for (const [path, item] of Object.entries(contract.paths)) {
    for (const [method, operation] of Object.entries(item)) show(main, path, method, operation);
  }
  make("h1", "Schemas", main);
  for (const [name, schema] of Object.entries(contract.components.schemas)) {
    const details = make("details", "", main);
    make("summary", name, details);
    make("pre", JSON.stringify(schema, null, 2), details);
  }
};

start().catch((error) => { document.getElementById("status").textContent = String(error); });
