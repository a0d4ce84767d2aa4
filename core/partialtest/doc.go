// Package partialtest makes calls of which only a part is sent, for tests of servers that must not hold too much of them.
package partialtest
