// Package block writes and removes a managed block in a hosts file, and leaves every other line of the file as it is, byte for byte.
//
// The block begins and ends with marker lines of its own. What counts as the block's are the markers, the note after the first one and the lines
// in the form that the package itself writes, between the markers; a line of any other form that somebody has put there is kept, after the block.
// So a damaged block (a marker that is missing, a second block) costs nobody a line.
//
// A file is seen as lines that are separated, not ended, by newlines. A block at the end is followed by a newline, so that what another program appends is a
// line of its own. A last line that had no newline therefore keeps the one before the block when the block is removed.
//
// The package owns no state.
package block
