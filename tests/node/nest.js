// Applications of NestJS for tests, without TypeScript.

import 'reflect-metadata'
import { Inject, Injectable, Module } from '@nestjs/common'
import { HeldLease } from 'quorlock/nestjs'

/** Applies decorators to a method as TypeScript does: those of the parameters first, then from the last to the first. */
export function decorate(prototype, key, decorators, parameters = []) {
  for (const [index, decorator] of parameters.entries()) decorator?.(prototype, key, index)
  let descriptor = Object.getOwnPropertyDescriptor(prototype, key)
  for (const decorator of decorators.toReversed()) descriptor = decorator(prototype, key, descriptor) || descriptor
  Object.defineProperty(prototype, key, descriptor)
}

/** `@HeldLease()` on the parameter at this position. */
export const leaseAt = (index) => Object.assign([], { [index]: HeldLease() })

/** Makes a class injectable, with these providers as the parameters of its constructor. */
export function injectable(kind, injected = [], options = undefined) {
  for (const [index, token] of injected.entries()) Inject(token)(kind, undefined, index)
  Injectable(options)(kind)
  return kind
}

/** Returns a module. */
export function moduleOf(metadata) {
  class App {}
  Module(metadata)(App)
  return App
}
