/* SPDX-License-Identifier: Apache-2.0
 *
 * translate.cpp: what device code has that g++ has not.
 *   asm volatile("add.rn.f32 %0, %0, %1;" : "+f"(d) : "f"(t));    { float o0 = d; const float o1 = t; ptx::add_rn_f32(o0, o0, o1); d = o0; }
 *   extern __shared__ uint4 memory[];                             static const emu::dynamic<uint4> memory; or in a function a pointer
 *   __shared__ int tops[2][8];                                    static const emu::constant<int, ...> tops; or in a function a reference */
#include "translate.hpp"

#include <ctype.h>
#include <string.h>

#include <vector>

using std::string;
typedef std::vector<string> strings;

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

static string trimmed(const string &s)
{
    const size_t first = s.find_first_not_of(" \t\r\n"), last = s.find_last_not_of(" \t\r\n");
    return first == string::npos ? "" : s.substr(first, last - first + 1);
}

/* Behind the string or character that begins at i. */
static size_t behind_quotes(const string &s, size_t i)
{
    const char quote = s[i++];
    while (i < s.size() && s[i] != quote) i += s[i] == '\\' ? 2 : 1;
    return i + 1;
}

/* Behind the bracket that ends what begins at i. */
static size_t behind_brackets(const string &s, size_t i)
{
    int depth = 0;
    while (i < s.size()) {
        if (s[i] == '"' || s[i] == '\'') {
            i = behind_quotes(s, i);
            continue;
        }
        if (strchr("([{", s[i])) depth++;
        if (strchr(")]}", s[i]) && --depth == 0) return i + 1;
        i++;
    }
    throw string("a bracket without its end");
}

/* Parts between separators that are in no brackets or strings; one of the kind that is doubled (::) does not count. */
static strings split(const string &s, char separator)
{
    strings parts(1);
    for (size_t i = 0; i < s.size();) {
        size_t next = i + 1;
        if (s[i] == '"' || s[i] == '\'') next = behind_quotes(s, i);
        else if (strchr("([{", s[i])) next = behind_brackets(s, i);
        else if (s[i] == separator) {
            parts.push_back("");
            i++;
            continue;
        }
        parts.back() += s.substr(i, next - i);
        i = next;
    }
    return parts;
}

/* ---- inline assembly ---- */

struct operand { char kind; bool out, in; string expression; };

static string literal(const string &s) /* "a" "b": what it says */
{
    string out;
    for (size_t i = 0; i < s.size();) {
        if (s[i] != '"') {
            i++;
            continue;
        }
        const size_t end = behind_quotes(s, i);
        for (size_t k = i + 1; k + 1 < end; k++) {
            if (s[k] != '\\') out += s[k];
            else if (s[++k] == 'n') out += ' ';
            else out += s[k];
        }
        i = end;
    }
    return out;
}

static void read_operands(std::vector<operand> &all, const string &list)
{
    if (trimmed(list).empty()) return;
    for (const string &one : split(list, ',')) {
        const string s = trimmed(one);
        const size_t quote = behind_quotes(s, 0), open = s.find('(', quote);
        const string constraint = literal(s.substr(0, quote));
        if (s[0] != '"' || open == string::npos || constraint.empty()) throw "an operand of asm: " + s;
        const bool out = constraint[0] == '=' || constraint[0] == '+';
        all.push_back({ constraint.back(), out, constraint[0] != '=', s.substr(open + 1, behind_brackets(s, open) - open - 2) });
    }
}

static string type_of(char kind)
{
    switch (kind) {
    case 'r': return "uint32_t";
    case 'f': return "float";
    case 'l': return "uint64_t";
    case 'h': return "uint16_t";
    case 'n': return "int";
    default: throw string("an operand of asm of kind ") + kind;
    }
}

/* An instruction's operands, without brackets: "{%0, %1}, [%2]" has three. */
static void read_arguments(strings &out, const string &text)
{
    for (const string &one : split(text, ',')) {
        const string s = trimmed(one);
        if (s.empty()) continue;
        if (s[0] == '[' || s[0] == '{') read_arguments(out, s.substr(1, behind_brackets(s, 0) - 2));
        else if (s == "_") out.push_back("ptx::ignored");
        else if (s.compare(0, 2, "_|") == 0) out.push_back(s.substr(2));
        else if (s == "%%tid.x") out.push_back("threadIdx.x");
        else if (s == "%%cluster_ctarank") out.push_back("(uint32_t)emu::m->self->in->rank");
        else if (s[0] == '%') out.push_back("o" + s.substr(1));
        else if (s.compare(0, 2, "0f") == 0) out.push_back("__uint_as_float(0x" + s.substr(2) + ")");
        else out.push_back(s);
    }
}

static string underlined(const string &s)
{
    string out = s;
    for (char &c : out)
        if (c == '.' || c == ':') c = '_';
    return out;
}

/* D of wgmma is too long for a call. */
static string wgmma(const string &name, const string &operands)
{
    const strings parts = split(operands, ',');
    strings d, rest;
    read_arguments(d, parts[0]);
    for (size_t i = 1; i < parts.size(); i++) read_arguments(rest, parts[i]);
    string list;
    for (const string &s : d) list += "&" + s + ", ";
    if (rest.size() == 9) /* four registers of a, b, more, signs of a and b, whether b is turned */
        return "{ float *const d_[] = { " + list + "}; const uint32_t a_[] = { " + rest[0] + ", " + rest[1] + ", " + rest[2] + ", " + rest[3] +
               " }; emu::m->product_kept(\"" + name.substr(name.find("m64")) + "\", d_, a_, " + rest[4] + ", " + rest[5] + "); }";
    const string turned = rest.size() == 7 ? rest[5] + ", " + rest[6] : "0, 0"; /* a, b, more, signs of a and b, whether a and b are turned */
    return "{ float *const d_[] = { " + list + "}; emu::m->product(\"" + name.substr(name.find("m64")) + "\", d_, " + rest[0] + ", " + rest[1] + ", " +
           rest[2] + ", " + turned + "); }";
}

static string instruction(const string &text, const std::vector<operand> &operands)
{
    string s = trimmed(text), before;
    if (s.empty()) return "";
    const size_t colon = s.find(':');
    if (colon != string::npos && s.substr(0, colon).find_first_not_of("abcdefghijklmnopqrstuvwxyz") == string::npos && s[colon + 1] == ' ')
        return s.substr(0, colon + 1) + "; " + instruction(s.substr(colon + 1), operands);
    if (s[0] == '@') {
        const size_t space = s.find(' '), no = s[1] == '!';
        before = string("if (") + (no ? "!" : "") + s.substr(1 + no, space - 1 - no) + ") ";
        s = trimmed(s.substr(space));
    }
    const size_t space = s.find(' ');
    const string name = s.substr(0, space), rest = space == string::npos ? "" : s.substr(space + 1);
    if (name == ".reg") {
        const size_t at = rest.find(' ');
        const string kind = rest.substr(0, at), type = kind == ".pred" ? "bool" : kind == ".b16" ? "uint16_t" : kind == ".b32" ? "uint32_t" : "";
        if (type.empty()) throw "a register of " + s;
        string out;
        for (const string &one : split(rest.substr(at), ',')) out += type + " " + trimmed(one) + " = 0; ";
        return out;
    }
    if (name == "bra") return before + "goto " + trimmed(rest) + "; ";
    if (name.compare(0, 16, "wgmma.mma_async.") == 0) return wgmma(name, rest);
    strings arguments;
    read_arguments(arguments, rest);
    if (name == "mov.u32" && arguments.size() == 2 && isalpha((unsigned char)arguments[1][0]) && rest.find('%', rest.find(',')) == string::npos)
        return before + arguments[0] + " = emu::m->address(" + arguments[1] + "); "; /* the address of shared memory */
    string out = before + "ptx::" + underlined(name) + "(";
    for (size_t i = 0; i < arguments.size(); i++) out += (i ? ", " : "") + arguments[i];
    return out + "); ";
}

/* body: what stands between asm's brackets */
static string assembly(const string &body)
{
    const strings parts = split(body, ':');
    std::vector<operand> operands;
    for (size_t i = 1; i < parts.size() && i < 3; i++) read_operands(operands, parts[i]);
    string code = trimmed(literal(parts[0])), out = "{ ";
    if (code.empty()) return "{ }"; /* a word to the optimiser alone */
    for (size_t i = 0; i < operands.size(); i++) {
        const operand &o = operands[i];
        const string name = "o" + std::to_string(i), type = type_of(o.kind);
        out += (o.out ? "" : "const ") + type + " " + name + " = " + (o.in ? "(" + type + ")(" + o.expression + ")" : "0") + "; ";
    }
    if (code[0] == '{') code = trimmed(code.substr(1, behind_brackets(code, 0) - 2));
    for (const string &one : split(code, ';')) out += instruction(one, operands);
    for (size_t i = 0; i < operands.size(); i++)
        if (operands[i].out) out += operands[i].expression + " = o" + std::to_string(i) + "; ";
    return out + "}";
}

/* ---- shared memory ---- */

struct declarations { bool outer, external; int *count; };

static string declaration(const string &type, const string &declarator, const declarations &how)
{
    const size_t open = declarator.find('[');
    if (open == string::npos) throw "shared memory that is no array: " + declarator;
    const string name = trimmed(declarator.substr(0, open)), size = declarator.substr(open), array = "(" + type + " (*)" + size + ")";
    const string dynamic = "((" + type + " *)(emu::m->self->in->memory + emu::SHARED_FIRST))";
    const string fixed = "(*" + array + "emu::m->fixed(" + std::to_string(*how.count) + ", (int)sizeof(" + type + size + ")))";
    if (!how.external) ++*how.count;
    if (how.outer && how.external) return "static const emu::dynamic<" + type + "> " + name + ";";
    if (how.outer) return "static const emu::constant<" + type + ", sizeof(" + type + size + "), " + std::to_string(*how.count - 1) + "> " + name + ";";
    return how.external ? type + " *const " + name + " = " + dynamic + ";" : type + " (&" + name + ")" + size + " = " + fixed + ";";
}

static string shared_memory(const string &text, const declarations &how) /* text: what stands behind __shared__ */
{
    string s = trimmed(text), out;
    if (s.compare(0, 9, "__align__") == 0) s = trimmed(s.substr(behind_brackets(s, s.find('('))));
    const strings parts = split(s, ',');
    const size_t last = parts[0].rfind(' ', parts[0].find('['));
    const string type = trimmed(parts[0].substr(0, last));
    for (size_t i = 0; i < parts.size(); i++) out += declaration(type, trimmed(i ? parts[i] : parts[i].substr(last)), how);
    return out;
}

static bool ends_with(const string &s, const string &end) { return s.size() >= end.size() && s.compare(s.size() - end.size(), end.size(), end) == 0; }

string translate(const string &text)
{
    string out;
    int depth = 0, count = 0;
    for (size_t i = 0; i < text.size();) {
        const char c = text[i];
        size_t end = i + 1;
        if (c == '"' || c == '\'') end = behind_quotes(text, i);
        if (c == '{' && !ends_with(out, "extern \"C\" ")) depth++; /* whose end changes nothing either */
        if (c == '}' && depth) depth--;
        if (!is_word(c) || (i && is_word(text[i - 1]))) {
            out += text.substr(i, end - i);
            i = end;
            continue;
        }
        while (end < text.size() && is_word(text[end])) end++;
        const string word = text.substr(i, end - i);
        if (word == "asm") {
            const size_t open = text.find('(', end), close = behind_brackets(text, open);
            out += assembly(text.substr(open + 1, close - open - 2));
            i = text.find(';', close) + 1;
        } else if (word == "__shared__") {
            const size_t stop = text.find(';', end);
            const size_t external = out.rfind("extern ");
            const bool is_external = external != string::npos && trimmed(out.substr(external + 7)).empty();
            if (is_external) out.erase(external);
            out += shared_memory(text.substr(end, stop - end), { depth == 0, is_external, &count });
            i = stop + 1;
        } else {
            out += word;
            i = end;
        }
    }
    return out;
}
