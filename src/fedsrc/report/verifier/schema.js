// Field types and limits, by schema.json (docs/format/schema.json without its words). docs/format.md, "Bytes".
"use strict";
import { Wrong } from "./outcome.js";
import { sameJson } from "./json.js";

/** @typedef {Record<string, any>} Schema */

const BIG = /^-?[1-9][0-9]{15,400}$/;
const NOT_PRINTABLE = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u; // control, direction and line characters, odd blanks

/** A number that canonical JSON writes as text, or null. @param {any} value */
export function numberIn(value) {
  if (typeof value === "number") return value;
  if (value === "inf") return Infinity;
  return typeof value === "string" && BIG.test(value) && !Number.isSafeInteger(Number(value)) ? Number(value) : null;
}

/** @param {any} value @param {string} type */
function isOf(value, type) {
  if (type === "null") return value === null;
  if (type === "array") return Array.isArray(value);
  if (type === "object") return value !== null && typeof value === "object" && !Array.isArray(value);
  if (type === "number") return numberIn(value) !== null;
  if (type === "integer") return Number.isSafeInteger(value) || (numberIn(value) !== null
    && numberIn(value) !== Infinity && typeof value === "string");
  return typeof value === type;
}

/** The types of a field's values, or of those in its lists. @param {Schema} schema @returns {string[]} */
function typesOf(schema) {
  if (schema.anyOf) return schema.anyOf.flatMap(typesOf);
  return schema.items ? typesOf(schema.items) : schema.type ? [schema.type] : [];
}

/** The types of fields by their names, wherever they are. @param {Schema} root @returns {Map<string, Set<string>>} */
export function typesByName(root) {
  const found = new Map();
  for (const { properties = {} } of [root, .../** @type {Schema[]} */ (Object.values(root.$defs))])
    for (const [name, schema] of Object.entries(properties))
      found.set(name, new Set([...(found.get(name) ?? []), ...typesOf(/** @type {Schema} */ (schema))]));
  return found;
}

/**
 * Refuse a value that is not as its schema says; every field is there, but for those left out while at their default.
 * Where the root says `texts`, no other field than those has a number as text.
 * @param {any} value @param {Schema} schema @param {Schema} root @param {string} where
 */
export function conforms(value, schema, root, where) {
  /** @param {string} what @returns {never} */
  const refuse = (what) => { throw new Wrong(what, where); };
  if (schema.$ref) return conforms(value, root.$defs[schema.$ref.split("/").at(-1)], root, where);
  if (schema.discriminator) {
    const kind = value?.[schema.discriminator.propertyName];
    if (typeof kind !== "string" || !Object.hasOwn(schema.discriminator.mapping, kind)) refuse("is of an unknown kind");
    return conforms(value, { $ref: schema.discriminator.mapping[kind] }, root, where);
  }
  if (schema.anyOf) {
    const fits = schema.anyOf.some((each) => {
      try {
        conforms(value, each, root, where);
        return true;
      } catch (error) {
        if (error instanceof Wrong) return false;
        throw error;
      }
    });
    return fits ? undefined : refuse("is not of a known form");
  }
  if (schema.type && !isOf(value, schema.type)) refuse(`is not of type ${schema.type}`);
  if ("const" in schema && value !== schema.const) refuse(`is not ${schema.const}`);
  if (schema.enum && !schema.enum.includes(value)) refuse("is none of the known values");
  if (schema.type === "number" || schema.type === "integer") inLimits(numberIn(value), schema, refuse);
  if (schema.type === "string") {
    if ([...value].length < (schema.minLength ?? 0)
      || [...value].length > (schema.maxLength ?? Infinity)) refuse("is too short or too long");
    if (schema.pattern && !new RegExp(schema.pattern, "u").test(value)) refuse("is not of the known form");
    if (NOT_PRINTABLE.test(value)) refuse("is not printable text on one line");
  }
  if (schema.type === "array") {
    if (value.length < (schema.minItems ?? 0)
      || value.length > (schema.maxItems ?? Infinity)) refuse("has too few or too many entries");
    value.forEach((each, i) => conforms(each, schema.items, root, `${where}[${i + 1}]`));
  }
  if (schema.properties) fieldsConform(value, schema, root, where, refuse);
}

/** @param {any} x @param {Schema} schema @param {(what: string) => never} refuse */
function inLimits(x, schema, refuse) {
  if (!(x >= (schema.minimum ?? -Infinity) && x <= (schema.maximum ?? Infinity))) refuse("is outside its limits");
  if (!(x > (schema.exclusiveMinimum ?? -Infinity))) refuse("is outside its limits");
  if ("exclusiveMaximum" in schema && !(x < schema.exclusiveMaximum)) refuse("is outside its limits");
}

/** @param {any} value @param {Schema} schema @param {Schema} root @param {string} where
 * @param {(what: string) => never} refuse */
function fieldsConform(value, schema, root, where, refuse) {
  const left = schema.left_out ?? {};
  for (const name of Object.keys(value)) {
    if (!Object.hasOwn(schema.properties, name)) refuse(`has an unknown field ${JSON.stringify(name)}`);
    if (Object.hasOwn(left, name) && sameJson(value[name], left[name])) refuse(`writes ${name}, which has its default`);
    if (root.texts && typeof value[name] === "string" && !root.texts.includes(name)
      && !typesOf(schema.properties[name]).includes("string") && !schema.properties[name].$ref)
      refuse(`has text for the number ${name}`);
    conforms(value[name], schema.properties[name], root, `${where}.${name}`);
  }
  for (const name of Object.keys(schema.properties)) if (!(name in value
    || Object.hasOwn(left, name))) refuse(`has no ${name}`);
}
