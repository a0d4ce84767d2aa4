// Package tickets says what a ticket is worth: who has its secret, until when it is taken, how often, and what it allows. It keeps nothing and watches nothing:
// tickets are kept by internal/store, made and revoked by internal/management, and spent by internal/enrolment.
//
// The cluster keeps a ticket's secret as its SHA-256 only. The secret is 32 random bytes, so that nobody finds it by the hash, and guessing it need not be
// slowed down.
package tickets
