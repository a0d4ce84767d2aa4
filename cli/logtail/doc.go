// Package logtail goes on with a log whose end was seen before, after the contact to the node was lost: without a line twice, and without one left out as far
// as the node still keeps it. The node numbers no lines, so a place in a log is told by the lines before it. The package owns no state outside of a
// Place.
package logtail
