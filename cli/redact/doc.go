// Package redact takes secrets out of what is shown or handed on: the values of configurations, of which only the structure stays, and in any text what is a
// private key or is named or known as a secret. It owns no state.
//
// What stays is not proved to be free of secrets: a role may write anything to its log. What is redacted too much is less harm than what is not.
package redact
