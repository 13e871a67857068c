"""The dialect: types and their values, names, statements, character sets."""
