// Package attest makes, signs and reads conformance reports: what a run of the conformance suite found of one executable, as an in-toto statement with the predicate for
// test results, in a DSSE envelope that is signed by an Ed25519 key. The command line makes them, the curator takes them into the catalog, and the core carries those
// of the built-in plugins.
//
// An envelope is opened, which says by whose key it claims to be signed, and then verified with a key that the caller trusts for its own reasons; only that gives the
// report. What is trusted is read strictly: no name twice in an object, none that a lenient reader would take for another one, and the fields that the predicate
// defines say the same as Reeve's own beside them. Fields that nobody here knows are left alone, as in-toto has it.
//
// It owns no state. The formats are
// https://github.com/secure-systems-lab/dsse/blob/v1.0.2/protocol.md,
// https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md and
// https://github.com/in-toto/attestation/blob/main/spec/predicates/test-result.md.
package attest
