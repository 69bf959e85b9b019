// Types for the type check only: the libraries that index.html loads as globals, and the routes of the REST API.
import type * as ObservablePlot from "@observablehq/plot";
import type htm from "htm";
import type * as preact from "preact";
import type * as preactHooks from "preact/hooks";
import type { components, paths } from "./api-types";

// The helpers below look types up in the description of the API. A path is given below /api/v1, with the names of its
// parameters, such as "/runs/{run}/series".
type Responses<Operation> = Operation extends { responses: infer All } ? All[keyof All & (200 | 201 | 202)] : never;
type JsonBody<Message> = Message extends { content: { "application/json": infer Body } } ? Body : never;
type Prefixed<Path extends string> = `/api/v1${Path}` & keyof paths;
type Operation<Path extends string, Method extends string> =
  Prefixed<Path> extends infer FullPath extends keyof paths
    ? paths[FullPath] extends Record<Method, infer Description>
      ? Description
      : never
    : never;

/** The paths below /api/v1 that answer `Method` with JSON. */
type JsonPath<Method extends string> = {
  [FullPath in keyof paths]: FullPath extends `/api/v1${infer Path}`
    ? [JsonBody<Responses<Operation<Path, Method>>>] extends [never]
      ? never
      : Path
    : never;
}[keyof paths];

type ParametersIn<Location extends "path" | "query", Path extends string, Method extends string> =
  Operation<Path, Method> extends { parameters: infer All extends Record<string, unknown> }
    ? [NonNullable<All[Location]>] extends [never]
      ? unknown
      : NonNullable<All[Location]>
    : unknown;
type QueryValue = string | number | boolean | readonly string[] | null | undefined;

declare global {
  const Plot: typeof ObservablePlot;
  /** The part of D3 that is used beside Plot, which brings no types of it. */
  const d3: {
    nice(start: number, stop: number, count: number): [number, number];
    ticks(start: number, stop: number, count: number): number[];
    tickFormat(start: number, stop: number, count: number, specifier?: string): (tick: number) => string;
  };
  function renderMathInElement(element: HTMLElement, options: object): void;
  interface Window {
    preact: typeof preact;
    preactHooks: typeof preactHooks;
    htm: typeof htm;
    Redoc: { init(description: string, options: object, element: HTMLElement | null): void };
  }

  /** What the REST API answers with, by the names of its description. */
  type Schemas = components["schemas"];
  type GetPath = JsonPath<"get">;
  type PostPath = JsonPath<"post">;
  type GetResponse<Path extends GetPath> = JsonBody<Responses<Operation<Path, "get">>>;
  type PostResponse<Path extends PostPath> = JsonBody<Responses<Operation<Path, "post">>>;
  type PostBody<Path extends PostPath> =
    Operation<Path, "post"> extends { requestBody: infer Request } ? JsonBody<Request> : never;
  type PathParameters<Path extends string, Method extends string = "get"> = {
    [Name in keyof ParametersIn<"path", Path, Method>]: string | number;
  };
  /** What a request needs: the parameters of its path, and any of its query. */
  type GetParameters<Path extends string> = PathParameters<Path> & {
    [Name in keyof ParametersIn<"query", Path, "get">]?: QueryValue;
  };
  /** A path and its parameters, which may be missing if the path has none. */
  type GetRequest = {
    [Path in GetPath]: keyof PathParameters<Path> extends never
      ? readonly [Path, GetParameters<Path>?]
      : readonly [Path, GetParameters<Path>];
  }[GetPath];

  type Children = preact.ComponentChildren;
  /** What a template of htm may contain; a function is a component or handles an event. */
  // biome-ignore lint/suspicious/noExplicitAny: htm does not check which element or component a value is for
  type TemplateValue = Children | ((argument: any) => unknown) | object;
  type EventOn<Target extends Element> = Event & { target: Target };
}
