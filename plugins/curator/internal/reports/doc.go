// Package reports takes signed reports of the conformance suite into the catalog: it finds out who signed one, and makes of it what the catalog holds. A report counts
// because of who signed it: somebody who may also add plugins, and is known at the moment at which the report is taken in; or whoever has built the plugins that the
// cluster was made with.
//
// It owns no state.
package reports
