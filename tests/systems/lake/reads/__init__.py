"""Tests of reading lakes as changes."""
